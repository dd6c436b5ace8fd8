#include "framework/optim/cuda/cuda.h"
#include "framework/optim/cuda/norm.cuh"

namespace delink::cuda {

void SumSquares(Stream& stream, const SumSquaresArgs& a) {
  if (a.n == 0) return;
  const int64_t blocks = (a.n + a.block - 1) / a.block;
  constexpr int64_t kEach = kSquareThreads / kSquareLanes;
  const dim3 grid(static_cast<unsigned>((blocks + kEach - 1) / kEach));
  if (a.x != nullptr) {
    Launch(SumSquaresKernel<const float*>, grid, dim3(kSquareThreads), 0,
           stream, a, static_cast<const float*>(a.x));
  } else {
    Launch(SumSquaresKernel<JoinedMaster>, grid, dim3(kSquareThreads), 0,
           stream, a, JoinedMaster{.w = a.w, .low = a.low});
  }
}

void FinishNorm(Stream& stream, const FinishNormArgs& a) {
  Launch(FinishNormKernel, dim3(1), dim3(kWarp), 0, stream, a);
}

void SumsTail(Stream& stream, const SumsTailArgs& a) {
  Launch(SumsTailKernel, dim3(1), dim3(1), 0, stream, a);
}

}  // namespace delink::cuda
