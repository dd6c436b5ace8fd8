#include <algorithm>
#include <cmath>

#include "framework/optim/cuda/adamw.cuh"
#include "framework/optim/cuda/adamw_block8.cuh"
#include "framework/optim/cuda/cuda.h"
#include "framework/optim/cuda/run_elements.cuh"

namespace delink::cuda {
namespace {

AdamWPlan PlanOf(const AdamWArgs& a) {
  const auto t = static_cast<double>(a.update);
  return {.g = {a.g, a.bf16_g},
          .n = a.n,
          .control = a.control,
          .lr_scale = a.lr_scale,
          .decay = a.decay,
          .rest1_of_t = 1 - std::pow(a.beta1, t),
          .beta1 = static_cast<float>(a.beta1),
          .rest1 = static_cast<float>(1 - a.beta1),
          .beta2 = static_cast<float>(a.beta2),
          .rest2 = static_cast<float>(1 - a.beta2),
          .root2 = static_cast<float>(std::sqrt(1 - std::pow(a.beta2, t))),
          .eps = static_cast<float>(a.eps)};
}

template <typename Master>
void UpdateBlocks(Stream& stream, const AdamWArgs& a, const Master& master,
                  bool aligned) {
  Block8Moments moments = {.m = static_cast<uint8_t*>(a.m),
                           .v = static_cast<uint8_t*>(a.v),
                           .m_scales = a.m_scales,
                           .v_scales = a.v_scales,
                           .in_block = a.in_block};
  std::copy(kSignedFractions8.begin(), kSignedFractions8.end(), moments.of_m);
  std::copy(kUnsignedFractions8.begin(), kUnsignedFractions8.end(),
            moments.of_v);
  const bool packed = aligned && Aligned(a.m, 4) && Aligned(a.v, 4) &&
                      a.in_block % kGroup8 == 0;
  const int64_t blocks = (a.in_block + a.n + kBlock8 - 1) / kBlock8;
  constexpr int64_t kResident = 8;  // of a multiprocessor
  const int64_t most = InfoOf(stream).multiprocessors * kResident;
  const int64_t grid =
      std::min((blocks + kBlock8Warps - 1) / kBlock8Warps, most);
  Launch(packed ? &AdamWBlock8Kernel<true, Master>
                : &AdamWBlock8Kernel<false, Master>,
         dim3(static_cast<unsigned>(grid)), dim3(kBlock8Threads), 0, stream,
         PlanOf(a), master, moments);
}

// `aligned`: whether the master is aligned for four elements at a time.
template <typename Master>
void Update(Stream& stream, const AdamWArgs& a, const Master& master,
            bool aligned) {
  aligned = aligned && GradientAligned({a.g, a.bf16_g});
  switch (a.moments) {
    case StateStorage::kExact: {
      const ExactMoments moments = {.m = static_cast<float*>(a.m),
                                    .v = static_cast<float*>(a.v)};
      const AdamWRule<Master, ExactMoments> rule = {PlanOf(a), master, moments};
      return RunElements(stream, rule, a.n,
                         aligned && Aligned(a.m, 16) && Aligned(a.v, 16));
    }
    case StateStorage::kBF16: {
      const HalfMoments moments = {.m = static_cast<uint16_t*>(a.m),
                                   .v = static_cast<uint16_t*>(a.v),
                                   .key = a.key,
                                   .numbers = a.numbers};
      const AdamWRule<Master, HalfMoments> rule = {PlanOf(a), master, moments};
      return RunElements(stream, rule, a.n,
                         aligned && Aligned(a.m, 8) && Aligned(a.v, 8));
    }
    case StateStorage::kBlock8:
      return UpdateBlocks(stream, a, master, aligned);
  }
}

}  // namespace

void AdamW(Stream& stream, const AdamWArgs& a) {
  WithMaster(a, [&](const auto& master, bool aligned) {
    Update(stream, a, master, aligned);
  });
}

}  // namespace delink::cuda
