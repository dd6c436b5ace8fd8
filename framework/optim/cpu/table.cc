#include "framework/optim/cpu/cpu_kernels.h"

namespace delink::cpu {

const OptimKernels* OptimTable(DType dtype) {
  static constexpr OptimKernels kF32 = {AdamW<float>, SumSquares<float>,
                                        FinishNorm, SumsTail};
  static constexpr OptimKernels kF64 = {AdamW<double>, SumSquares<double>,
                                        FinishNorm, SumsTail};
  switch (dtype) {
    case DType::kF32:
      return &kF32;
    case DType::kF64:
      return &kF64;
    default:
      return nullptr;
  }
}

}  // namespace delink::cpu
