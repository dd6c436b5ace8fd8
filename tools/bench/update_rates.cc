#include "tools/bench/update_rates.h"

#include "framework/base/check.h"
#include "framework/base/status_macros.h"
#include "framework/optim/kernels.h"
#include "framework/tensor/block8.h"
#include "framework/tensor/buffer.h"

namespace delink::bench {
namespace {

DType MomentType(StateStorage moments) {
  switch (moments) {
    case StateStorage::kExact:
      return DType::kF32;
    case StateStorage::kBF16:
      return DType::kBF16;
    case StateStorage::kBlock8:
      break;
  }
  return DType::kU8;
}

}  // namespace

AdamWArgs AdamWOf(const offload::ParamForms& forms, int64_t n, Pieces& m) {
  const bool rounds = forms.weights == DType::kBF16;
  const DType moments = MomentType(forms.moments);
  AdamWArgs a{.g = m.Take(n, forms.gradients),
              .bf16_g = forms.gradients == DType::kBF16,
              .m = m.Take(n, moments),
              .v = m.TakePositive(n, moments),
              .n = n,
              .beta1 = 0.9,
              .beta2 = 0.95,
              .eps = 1e-8,
              .decay = 0.1,
              .update = 10,
              .control = m.Put<UpdateControl>({{.lr = 1e-4, .clip_factor = 1}}),
              .master = forms.master,
              .moments = forms.moments};
  if (forms.master == MasterForm::kWhole) a.p = m.Take(n, DType::kF32);
  if (rounds) a.w = m.Take(n, DType::kBF16);
  if (forms.master == MasterForm::kSplit) {
    a.low = static_cast<uint16_t*>(m.Take(n, DType::kBF16));
  }
  if (forms.moments == StateStorage::kBlock8) {
    const auto scales = [&] {
      return static_cast<float*>(m.TakePositive(n / kBlock8, DType::kF32));
    };
    a.m_scales = scales();
    a.v_scales = scales();
  }
  return a;
}

std::vector<offload::ParamForms> RatedForms() {
  constexpr auto kSplit = MasterForm::kSplit;
  return {{.weights = DType::kF32, .gradients = DType::kF32},
          {},
          {.master = kSplit},
          {.master = kSplit, .moments = StateStorage::kBF16},
          {.master = kSplit, .moments = StateStorage::kBlock8}};
}

absl::StatusOr<double> MeasureUpdate(Target& target,
                                     const offload::ParamForms& forms,
                                     int64_t parameters, double seconds) {
  DELINK_CHECK_EQ(parameters % kBlock8, 0);
  Pieces count;
  AdamWOf(forms, parameters, count);
  DELINK_ASSIGN_OR_RETURN(
      const Buffer memory,
      Buffer::Allocate(target.device(), count.bytes(), "parameters"));
  target.Fill(memory.data(), memory.bytes());
  Pieces pieces(target, memory.data());
  const AdamWArgs args = AdamWOf(forms, parameters, pieces);
  const Timing timing = target.Measure(
      [&](int64_t) { target.optim().adamw(target.stream(), args); },
      {.seconds = seconds, .least = 5});
  return static_cast<double>(parameters) / timing.median;
}

}  // namespace delink::bench
