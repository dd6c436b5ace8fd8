#include "dyt/kernels.h"

#include <algorithm>
#include <cmath>

#include "framework/tensor/bfloat16.h"

namespace dyt {
namespace {

using delink::BFloat16;
using delink::DeviceKind;
using delink::DType;
using delink::Stream;
using delink::Wide;

// docs: kernels
template <typename T>
void Forward(Stream&, const ForwardArgs& a) {
  const auto* x = static_cast<const T*>(a.x);
  const auto* slope = static_cast<const T*>(a.slope);
  const auto* scale = static_cast<const T*>(a.scale);
  auto* y = static_cast<T*>(a.y);
  for (int64_t n = 0; n < a.N; ++n) {
    for (int64_t d = 0; d < a.D; ++d) {
      const int64_t i = n * a.D + d;
      y[i] = static_cast<T>(scale[d] * std::tanh(slope[d] * x[i]));
    }
  }
}

template <typename T>
void BackwardInput(Stream&, const BackwardInputArgs& a) {
  const auto* dy = static_cast<const T*>(a.dy);
  const auto* x = static_cast<const T*>(a.x);
  const auto* slope = static_cast<const T*>(a.slope);
  const auto* scale = static_cast<const T*>(a.scale);
  auto* dx = static_cast<T*>(a.dx);
  for (int64_t n = 0; n < a.N; ++n) {
    for (int64_t d = 0; d < a.D; ++d) {
      const int64_t i = n * a.D + d;
      const auto t = std::tanh(slope[d] * x[i]);
      dx[i] = static_cast<T>(dy[i] * scale[d] * slope[d] * (1 - t * t));
    }
  }
}

template <typename T>
void BackwardWeight(Stream&, const BackwardWeightArgs& a) {
  const auto* dy = static_cast<const T*>(a.dy);
  const auto* x = static_cast<const T*>(a.x);
  const auto* slope = static_cast<const T*>(a.slope);
  const auto* scale = static_cast<const T*>(a.scale);
  auto* dslope = static_cast<Wide<T>*>(a.dslope);
  auto* dscale = static_cast<Wide<T>*>(a.dscale);
  if (!a.accumulate_slope) std::fill_n(dslope, a.D, 0);
  if (!a.accumulate_scale) std::fill_n(dscale, a.D, 0);
  for (int64_t n = 0; n < a.N; ++n) {
    for (int64_t d = 0; d < a.D; ++d) {
      const int64_t i = n * a.D + d;
      const auto t = std::tanh(slope[d] * x[i]);
      dslope[d] += dy[i] * scale[d] * x[i] * (1 - t * t);
      dscale[d] += dy[i] * t;
    }
  }
}
// docs: end

// docs: list
template <typename T>
constexpr Kernels kOnCpu = {Forward<T>, BackwardInput<T>, BackwardWeight<T>};

constexpr Kernels kOnMeta = {delink::meta::Nothing, delink::meta::Nothing,
                             delink::meta::Nothing};

}  // namespace

const delink::KernelList<Kernels>& ListOfKernels() {
  static const delink::KernelList<Kernels> kList = {
      {DeviceKind::kCpu, DType::kF32, kOnCpu<float>},
      {DeviceKind::kCpu, DType::kF64, kOnCpu<double>},
      {DeviceKind::kCpu, DType::kBF16, kOnCpu<BFloat16>},
      {DeviceKind::kMeta, DType::kF32, kOnMeta},
      {DeviceKind::kMeta, DType::kF64, kOnMeta},
      {DeviceKind::kMeta, DType::kBF16, kOnMeta},
  };
  return kList;
}
// docs: end

}  // namespace dyt
