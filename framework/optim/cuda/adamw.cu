#include <cmath>

#include "framework/optim/cuda/adamw.cuh"
#include "framework/optim/cuda/cuda.h"

namespace delink::cuda {
namespace {

bool Aligned(const void* address, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

}  // namespace

void AdamW(Stream& stream, const AdamWArgs& a) {
  const auto t = static_cast<double>(a.update);
  const AdamWPlan plan = {
      .p = static_cast<float*>(a.p),
      .m = static_cast<float*>(a.m),
      .v = static_cast<float*>(a.v),
      .w = static_cast<__nv_bfloat16*>(a.w),
      .g = static_cast<const float*>(a.g),
      .n = a.n,
      .control = a.control,
      .decay = a.decay,
      .rest1_of_t = 1 - std::pow(a.beta1, t),
      .beta1 = static_cast<float>(a.beta1),
      .rest1 = static_cast<float>(1 - a.beta1),
      .beta2 = static_cast<float>(a.beta2),
      .rest2 = static_cast<float>(1 - a.beta2),
      .root2 = static_cast<float>(std::sqrt(1 - std::pow(a.beta2, t))),
      .eps = static_cast<float>(a.eps)};
  const bool packed = Aligned(a.p, 16) && Aligned(a.g, 16) &&
                      Aligned(a.m, 16) && Aligned(a.v, 16) && Aligned(a.w, 8);
  const int64_t each = int64_t{kAdamWThreads} * (packed ? 4 : 1);
  Launch(packed ? &AdamWKernel<4> : &AdamWKernel<1>,
         dim3(static_cast<unsigned>((a.n + each - 1) / each)),
         dim3(kAdamWThreads), 0, stream, plan);
}

}  // namespace delink::cuda
