#include <cmath>

#include "framework/optim/cuda/adafactor.cuh"
#include "framework/optim/cuda/cuda.h"
#include "framework/optim/cuda/run_elements.cuh"

namespace delink::cuda {
namespace {

AdafactorPlan PlanOf(const AdafactorArgs& a) {
  const auto t = static_cast<double>(a.update);
  return {.args = a,
          .sums = a.sums(),
          .rows = a.whole_rows(),
          .columns = a.whole_columns(),
          .rest = static_cast<float>(std::pow(t, -0.8)),
          .floor = static_cast<float>(a.eps * a.eps),
          .least_rate = 1 / std::sqrt(t),
          .root_of_size = std::sqrt(static_cast<double>(a.whole_elements()))};
}

unsigned BlocksOf(int64_t items, int64_t each) {
  return static_cast<unsigned>((items + each - 1) / each);
}

}  // namespace

void ColumnSquares(Stream& stream, const ColumnSquaresArgs& a) {
  const unsigned columns = BlocksOf(a.columns, kRowThreads);
  const unsigned runs = BlocksOf(a.rows, kColumnRun);
  Launch(ColumnRunsKernel, dim3(columns, runs), dim3(kRowThreads), 0, stream,
         a);
  Launch(ColumnSumsKernel, dim3(columns), dim3(kRowThreads), 0, stream, a,
         int64_t{runs});
}

void AdafactorFactors(Stream& stream, const AdafactorArgs& a) {
  const AdafactorPlan plan = PlanOf(a);
  Launch(FactorsKernel, dim3(BlocksOf(a.rows + a.columns, kRowThreads)),
         dim3(kRowThreads), 0, stream, plan);
  Launch(MeanKernel, dim3(1), dim3(kWarp), 0, stream, plan);
}

void AdafactorSums(Stream& stream, const AdafactorArgs& a) {
  Launch(a.columns > 0 ? &MatrixSumsKernel : &VectorSumsKernel,
         dim3(BlocksOf(a.sums(), kSumThreads / kSumLanes)), dim3(kSumThreads),
         0, stream, PlanOf(a));
}

void AdafactorTotals(Stream& stream, const AdafactorArgs& a) {
  Launch(TotalsKernel, dim3(1), dim3(kWarp), 0, stream, PlanOf(a));
}

void AdafactorStep(Stream& stream, const AdafactorArgs& a) {
  const AdafactorPlan plan = PlanOf(a);
  Launch(StepSizeKernel, dim3(1), dim3(kWarp), 0, stream, plan);
  const bool gradient_aligned = GradientAligned({a.params.g, a.params.bf16_g});
  WithMaster(a.params, [&]<typename Master>(const Master& master,
                                            bool aligned) {
    aligned = aligned && gradient_aligned;
    if (a.columns == 0) {
      RunElements(stream,
                  VectorStepRule<Master>{.plan = plan, .master = master},
                  a.params.n, aligned && Aligned(a.v, 16));
      return;
    }
    const bool packed = aligned && Aligned(a.column, 16) && a.columns % 4 == 0;
    Launch(packed ? &MatrixStepKernel<4, Master> : &MatrixStepKernel<1, Master>,
           dim3(static_cast<unsigned>(a.rows)), dim3(kRowThreads), 0, stream,
           plan, master);
  });
}

}  // namespace delink::cuda
