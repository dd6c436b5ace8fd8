// What a step records of its routers, and the gradient that balances experts.
#pragma once

#include <cmath>

#include "layers/kernels/cuda/routing.cuh"

namespace delink::cuda {

// A warp has a token.
__global__ void __launch_bounds__(kRouteWarps* kWarp)
    RouteStatisticsKernel(RouteStatisticsArgs s) {
  const int64_t n = WarpOfGrid();
  if (n >= s.N) return;
  const bool counts = s.targets == nullptr || s.targets[n] >= 0;
  const float* const x = static_cast<const float*>(s.logits) + n * s.E;
  const int64_t size = s.E / s.form.prototypes;
  float entropy = 0, lse = 0;
  for (int64_t p = 0; counts && p < s.form.prototypes; ++p) {
    const RangeScores scores(x + p * size, size, s.form.sigmoid);
    const float all = scores.SumOfScores();
    float sum = 0;
    for (int64_t e = LaneOfWarp(); e < size; e += kWarp) {
      const float share = scores.Score(e) / all;
      if (share > 0) sum -= share * logf(share);
    }
    entropy += WarpSum(sum);
  }
  if (counts) {
    const RangeScores all(x, s.E, false);
    lse = all.most + logf(all.sum);
  }
  if (LaneOfWarp() != 0) return;
  s.rows[n] = entropy / static_cast<float>(s.form.prototypes);
  s.rows[s.N + n] = double{lse} * lse;
}

// A block has a sum; a thread adds its rows in order, then threads are added.
__global__ void __launch_bounds__(kAssignThreads) SumRowsKernel(SumRowsArgs s) {
  __shared__ double partial[kAssignThreads];
  const double* const rows = s.rows + int64_t{blockIdx.x} * s.N;
  double sum = 0;
  for (int64_t n = threadIdx.x; n < s.N; n += kAssignThreads) sum += rows[n];
  partial[threadIdx.x] = sum;
  __syncthreads();
  for (unsigned half = kAssignThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) s.sums[blockIdx.x] += partial[0];
}

// One block; whole numbers, so that the order of sums does not matter.
__global__ void __launch_bounds__(kAssignThreads)
    RecordLoadsKernel(RecordLoadsArgs s) {
  __shared__ double loads[kAssignThreads], above[kAssignThreads];
  loads[threadIdx.x] = above[threadIdx.x] = 0;
  for (int64_t e = threadIdx.x; e < s.E; e += kAssignThreads) {
    const int64_t load = s.loads[e];
    s.sums[e] += static_cast<double>(load);
    loads[threadIdx.x] += static_cast<double>(load);
    if (s.capacity > 0 && load > s.capacity) {
      above[threadIdx.x] += static_cast<double>(load - s.capacity);
    }
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 0; i < kAssignThreads; ++i) {
    s.sums[s.E] += loads[i];
    s.sums[s.E + 1] += above[i];
  }
}

// Blocks along y have groups, threads along x counts of them.
__global__ void __launch_bounds__(kAssignThreads)
    CountPairsKernel(CountPairsArgs s) {
  const int64_t e = int64_t{blockIdx.x} * kAssignThreads + threadIdx.x;
  if (e > s.E) return;
  double count = 0;
  const int64_t first = int64_t{blockIdx.y} * s.tokens - s.first;
  const int64_t end = first + s.tokens < s.N ? first + s.tokens : s.N;
  for (int64_t n = first > 0 ? first : 0; n < end; ++n) {
    if (s.targets != nullptr && s.targets[n] < 0) continue;
    if (e == s.E) count += 1;
    for (int64_t j = 0; j < s.k; ++j) count += s.ids[n * s.k + j] == e ? 1 : 0;
  }
  s.counts[int64_t{blockIdx.y} * (s.E + 1) + e] = count;
}

__global__ void __launch_bounds__(kAssignThreads) BalanceKernel(BalanceArgs s) {
  const int64_t i = int64_t{blockIdx.x} * kAssignThreads + threadIdx.x;
  if (i >= s.G * s.E) return;
  if (s.loads != nullptr) {
    static_cast<float*>(s.dshares)[i] = static_cast<float>(
        s.weight * static_cast<const float*>(s.loads)[i % s.E]);
    return;
  }
  const double* const counts = s.counts + i / s.E * (s.E + 1);
  const double tokens = counts[s.E] * static_cast<double>(s.k);
  const double by =
      tokens > 0 ? s.weight * static_cast<double>(s.E) / tokens : 0;
  static_cast<float*>(s.dshares)[i] = static_cast<float>(by * counts[i % s.E]);
}

}  // namespace delink::cuda
