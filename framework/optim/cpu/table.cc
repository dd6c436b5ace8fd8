#include "framework/optim/cpu/cpu_kernels.h"

namespace delink::cpu {
namespace {

template <typename T>
constexpr OptimKernels kTable = {.adamw = AdamW<T>,
                                 .sum_squares = SumSquares<T>,
                                 .finish_norm = FinishNorm,
                                 .sums_tail = SumsTail,
                                 .sgd = Sgd<T>,
                                 .lion = Lion<T>,
                                 .muon_momentum = MuonMomentum<T>,
                                 .muon_normalize = MuonNormalize<T>,
                                 .scale_add = ScaleAdd<T>,
                                 .muon_step = MuonStep<T>,
                                 .column_squares = ColumnSquares<T>,
                                 .adafactor_factors = AdafactorFactors<T>,
                                 .adafactor_sums = AdafactorSums<T>,
                                 .adafactor_step = AdafactorStep<T>};

}  // namespace

const OptimKernels* OptimTable(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return &kTable<float>;
    case DType::kF64:
      return &kTable<double>;
    default:
      return nullptr;
  }
}

}  // namespace delink::cpu
