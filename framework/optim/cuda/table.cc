#include "framework/optim/cuda/cuda.h"
#include "framework/optim/kernels.h"

namespace delink::cuda {

const OptimKernels* OptimTable(DType dtype) {
  static constexpr OptimKernels kF32 = {.adamw = AdamW,
                                        .sum_squares = SumSquares,
                                        .finish_norm = FinishNorm,
                                        .sums_tail = SumsTail,
                                        .sgd = Sgd,
                                        .lion = Lion,
                                        .muon_momentum = MuonMomentum,
                                        .muon_normalize = MuonNormalize,
                                        .scale_add = ScaleAdd,
                                        .muon_step = MuonStep,
                                        .column_squares = ColumnSquares,
                                        .adafactor_factors = AdafactorFactors,
                                        .adafactor_sums = AdafactorSums,
                                        .adafactor_step = AdafactorStep};
  return dtype == DType::kF32 ? &kF32 : nullptr;
}

}  // namespace delink::cuda
