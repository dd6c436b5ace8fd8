#include "framework/optim/cuda/cuda.h"
#include "framework/optim/cuda/norm.cuh"

namespace delink::cuda {

void SumSquares(Stream& stream, const SumSquaresArgs& a) {
  if (a.n == 0) return;
  const int64_t blocks = (a.n + a.block - 1) / a.block;
  constexpr int64_t kEach = kSquareThreads / kSquareLanes;
  Launch(SumSquaresKernel,
         dim3(static_cast<unsigned>((blocks + kEach - 1) / kEach)),
         dim3(kSquareThreads), 0, stream, a);
}

void FinishNorm(Stream& stream, const FinishNormArgs& a) {
  Launch(FinishNormKernel, dim3(1), dim3(kWarp), 0, stream, a);
}

void SumsTail(Stream& stream, const SumsTailArgs& a) {
  Launch(SumsTailKernel, dim3(1), dim3(1), 0, stream, a);
}

}  // namespace delink::cuda
