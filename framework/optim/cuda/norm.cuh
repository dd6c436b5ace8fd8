// Sums of squares in double, and the norm from them, with the bits of
// framework/optim/cpu/norm.cc: element i of a block is added to lane i mod 16,
// in order; then lanes 8 apart are added, and these eight in order. (A product
// of two f32 is exact in double, so that contraction changes nothing.)
//
// 16 threads sum one block of elements. There are few blocks, and each is long:
// a thread loads kSquaresAhead elements ahead while it adds as many.
#pragma once

#include <limits>

#include "framework/device/cuda/ordered_sum.cuh"
#include "framework/optim/cuda/elementwise.cuh"

namespace delink::cuda {

inline constexpr int kSquareLanes = 16;
inline constexpr int kSquareThreads = 32;
inline constexpr int kSquaresAhead = 32;

struct SquaresAhead {
  float values[kSquaresAhead];

  // Those of one lane from element `first` on, 0 past the end.
  template <typename Source>
  __device__ void Load(const Source& x, int64_t first, int64_t end) {
#pragma unroll
    for (int i = 0; i < kSquaresAhead; ++i) {
      const int64_t at = first + i * kSquareLanes;
      values[i] = at < end ? x[at] : 0.0F;
    }
  }
};

// Weights, with or without the low bits of a split master.
struct JoinedMaster {
  const uint16_t* w;
  const uint16_t* low;  // may be null

  __device__ float operator[](int64_t i) const {
    const uint16_t rest = low == nullptr ? uint16_t{0} : low[i];
    return SplitMaster{w[i], rest}.Value();
  }
};

// g' of a gradient.
struct ClippedGradient {
  Gradient gradient;
  const UpdateControl* control;

  __device__ float operator[](int64_t i) const {
    return GradientScale(*control)(gradient[i]);
  }
};

// Source is const float*, JoinedMaster or ClippedGradient.
template <typename Source>
__global__ void __launch_bounds__(kSquareThreads)
    SumSquaresKernel(SumSquaresArgs s, Source x) {
  constexpr int64_t kStep = kSquareLanes * kSquaresAhead;
  const int lane = static_cast<int>(threadIdx.x) % kSquareLanes;
  const int64_t block =
      (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kSquareLanes;
  const int64_t begin = block * s.block;
  const int64_t end = begin + s.block < s.n ? begin + s.block : s.n;

  double sum = 0.0;
  SquaresAhead next;
  next.Load(x, begin + lane, end);
  for (int64_t first = begin + lane; first < end; first += kStep) {
    const SquaresAhead now = next;
    next.Load(x, first + kStep, end);
#pragma unroll
    for (int i = 0; i < kSquaresAhead; ++i) {
      const double value = now.values[i];
      sum += value * value;
    }
  }
  // Every lane of the warp is here again, also those without a block.
  sum += __shfl_xor_sync(kFullWarp, sum, kSquareLanes / 2);
  double total = 0.0;
  for (int i = 0; i < kSquareLanes / 2; ++i) {
    total += __shfl_sync(kFullWarp, sum, i, kSquareLanes);
  }
  if (lane == 0 && begin < s.n) s.sums[block] = total;
}

__device__ inline bool IsFinite(double x) {
  return fabs(x) <= std::numeric_limits<double>::max();
}

// One warp.
__global__ void __launch_bounds__(kWarp) FinishNormKernel(FinishNormArgs a) {
  __shared__ double stage[kOrderedStage];
  const double squares = SumInOrder(0.0, a.sums, a.n, stage);
  if (threadIdx.x != 0) return;
  UpdateControl& control = *a.control;
  const double loss_sum = a.sums[a.n], tokens = a.sums[a.n + 1],
               lost = a.sums[a.n + 2];
  const double norm = sqrt(squares) / tokens;
  const bool skip = !IsFinite(loss_sum) || !IsFinite(norm) || !(tokens > 0) ||
                    lost > 0 ||
                    (control.skip_above > 0 && norm > control.skip_above);
  double factor = 1.0;
  if (control.clip > 0) {
    const double within = control.clip / (norm + 1e-6);
    factor = within < 1.0 ? within : 1.0;
  }
  control.loss_sum = loss_sum;
  control.tokens = tokens;
  control.lost = lost;
  control.norm = norm;
  control.skip = skip ? 1 : 0;
  control.clip_factor = skip ? 0.0 : factor / tokens;
}

// One thread.
__global__ void SumsTailKernel(SumsTailArgs a) {
  a.tail[0] = *a.loss_sum;
  a.tail[1] = static_cast<double>(*a.tokens);
  a.tail[2] = *a.lost;
  a.tail[3] = a.votes;
}

}  // namespace delink::cuda
