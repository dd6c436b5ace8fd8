// Private to framework/optim/cuda: launches of elementwise rules.
#pragma once

#include "framework/optim/cuda/elementwise.cuh"

namespace delink::cuda {

inline bool Aligned(const void* address, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

// run(master, aligned), with one of masters.cuh for AdamW's arguments or
// UpdatedParams. `aligned`: four neighbours are.
template <typename Args, typename Run>
void WithMaster(const Args& a, const Run& run) {
  auto* const w = static_cast<uint16_t*>(a.w);
  switch (a.master) {
    case MasterForm::kWhole:
      return run(WholeMaster{.p = static_cast<float*>(a.p), .w = w},
                 Aligned(a.p, 16) && Aligned(w, 8));
    case MasterForm::kSplit:
      return run(HalvesMaster{.w = w, .low = a.low},
                 Aligned(w, 8) && Aligned(a.low, 8));
    case MasterForm::kNone:
      return run(NoMaster{.w = w, .key = a.key, .numbers = a.numbers},
                 Aligned(w, 8));
  }
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
