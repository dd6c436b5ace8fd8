// Sums and maxima over a warp or a block, the same bits every time: the order
// depends on the block's shape alone.
#pragma once

#include "framework/device/cuda/launch.cuh"

namespace delink::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kFullWarp = 0xFFFFFFFF;

// Every lane gets the result.
template <typename T>
__device__ T WarpSum(T value) {
  for (int lane = kWarp / 2; lane > 0; lane /= 2) {
    value += __shfl_xor_sync(kFullWarp, value, lane);
  }
  return value;
}
template <typename T>
__device__ T WarpMax(T value) {
  for (int lane = kWarp / 2; lane > 0; lane /= 2) {
    const T other = __shfl_xor_sync(kFullWarp, value, lane);
    value = other > value ? other : value;
  }
  return value;
}

// The sum over the lanes before this one.
template <typename T>
__device__ T WarpSumBefore(T value) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  T sum = value;
  for (int step = 1; step < kWarp; step *= 2) {
    const T other = __shfl_up_sync(kFullWarp, sum, step);
    if (lane >= step) sum += other;
  }
  return sum - value;
}

// Which of some lanes of a warp have this lane's value, of so many bits. All
// lanes call it.
__device__ inline unsigned Peers(int value, int bits, unsigned lanes) {
  unsigned peers = lanes;
  for (int bit = 0; bit < bits; ++bit) {
    const bool one = ((value >> bit) & 1) != 0;
    const unsigned ones = __ballot_sync(kFullWarp, one);
    peers &= one ? ones : ~ones;
  }
  return peers;
}

// The sum over a block of whole warps in x, at most 1024 threads. Every thread
// calls it and gets the result. `partial` is shared memory for one T a warp; it
// may be used again after the call.
template <typename T>
__device__ T BlockSum(T value, T* partial) {
  value = WarpSum(value);
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  if (warps == 1) return value;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (lane == 0) partial[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = WarpSum(lane < warps ? partial[lane] : T{0});
  __syncthreads();
  return value;
}

}  // namespace delink::cuda
