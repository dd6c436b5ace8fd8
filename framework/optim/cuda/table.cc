#include "framework/optim/cuda/cuda.h"
#include "framework/optim/kernels.h"

namespace delink::cuda {

const OptimKernels* OptimTable(DType dtype) {
  static constexpr OptimKernels kF32 = {.adamw = AdamW,
                                        .sum_squares = SumSquares,
                                        .finish_norm = FinishNorm,
                                        .sums_tail = SumsTail};
  return dtype == DType::kF32 ? &kF32 : nullptr;
}

}  // namespace delink::cuda
