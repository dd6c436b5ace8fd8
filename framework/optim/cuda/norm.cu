#include "framework/optim/cuda/cuda.h"
#include "framework/optim/cuda/norm.cuh"

namespace delink::cuda {

void SumSquares(Stream& stream, const SumSquaresArgs& a) {
  if (a.n == 0) return;
  const int64_t blocks = (a.n + a.block - 1) / a.block;
  constexpr int64_t kEach = kSquareThreads / kSquareLanes;
  const dim3 grid(static_cast<unsigned>((blocks + kEach - 1) / kEach));
  const auto sum = [&]<typename Source>(const Source& source) {
    Launch(SumSquaresKernel<Source>, grid, dim3(kSquareThreads), 0, stream, a,
           source);
  };
  if (a.clip != nullptr) {
    const bool narrow = a.x == nullptr;
    const void* const g = narrow ? static_cast<const void*>(a.w) : a.x;
    sum(ClippedGradient{.gradient = {g, narrow}, .control = a.clip});
  } else if (a.x != nullptr) {
    sum(static_cast<const float*>(a.x));
  } else {
    sum(JoinedMaster{.w = a.w, .low = a.low});
  }
}

void FinishNorm(Stream& stream, const FinishNormArgs& a) {
  Launch(FinishNormKernel, dim3(1), dim3(kWarp), 0, stream, a);
}

void SumsTail(Stream& stream, const SumsTailArgs& a) {
  Launch(SumsTailKernel, dim3(1), dim3(1), 0, stream, a);
}

}  // namespace delink::cuda
