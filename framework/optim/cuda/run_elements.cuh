// Private to framework/optim/cuda: launches of elementwise rules.
#pragma once

#include "framework/optim/cuda/elementwise.cuh"

namespace delink::cuda {

inline bool Aligned(const void* address, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

inline WholeMaster MasterOf(const UpdatedParams& params) {
  return {.p = static_cast<float*>(params.p),
          .w = static_cast<uint16_t*>(params.w)};
}
// Whether four neighbours are aligned.
inline bool MasterAligned(const UpdatedParams& params) {
  return Aligned(params.p, 16) && Aligned(params.w, 8);
}

inline bool GradientAligned(const Gradient& gradient) {
  return Aligned(gradient.g, gradient.narrow ? 8 : 16);
}

// `aligned`: every plane is aligned for four elements at a time.
template <typename Rule>
void RunElements(Stream& stream, const Rule& rule, int64_t n, bool aligned) {
  const int64_t each = int64_t{kElementThreads} * (aligned ? 4 : 1);
  Launch(aligned ? &ElementKernel<4, Rule> : &ElementKernel<1, Rule>,
         dim3(static_cast<unsigned>((n + each - 1) / each)),
         dim3(kElementThreads), 0, stream, rule, n);
}

}  // namespace delink::cuda
