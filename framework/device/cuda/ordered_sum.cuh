// Sums of doubles in the order of their indices, with the same bits as one
// thread that adds one after the other. So a sum that continues where another
// call stopped equals a sum in one call. A tree of sums would not.
#pragma once

#include "framework/device/cuda/reduce.cuh"

namespace delink::cuda {

inline constexpr int kOrderedLoads = 8;  // of a lane, ahead of the additions
inline constexpr int kOrderedStage = kOrderedLoads * kWarp;

// total + values[0] + ... + values[n - 1]. Every lane of a warp calls and gets
// it. `stage` is shared memory of the warp, [kOrderedStage], which may be used
// again after the call.
__device__ inline double SumInOrder(double total, const double* values,
                                    int64_t n, double* stage) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  double next[kOrderedLoads];
  const auto load = [&](int64_t first) {
#pragma unroll
    for (int i = 0; i < kOrderedLoads; ++i) {
      const int64_t at = first + i * kWarp + lane;
      next[i] = at < n ? values[at] : 0.0;
    }
  };
  load(0);
  for (int64_t first = 0; first < n; first += kOrderedStage) {
#pragma unroll
    for (int i = 0; i < kOrderedLoads; ++i) stage[i * kWarp + lane] = next[i];
    __syncwarp();
    // On its way from memory while the warp adds.
    load(first + kOrderedStage);
    const int count =
        static_cast<int>(n - first < kOrderedStage ? n - first : kOrderedStage);
#pragma unroll 8
    for (int i = 0; i < count; ++i) total += stage[i];
    __syncwarp();
  }
  return total;
}

}  // namespace delink::cuda
