// A stable radix sort by one byte of the ids at a time, the lowest first. The
// list is cut into segments, one for each warp. A pass counts each segment's
// digits and adds up the counts of the segments before it; then every warp
// knows where its occurrences go. So the result does not depend on the order in
// which warps run.
#pragma once

#include <algorithm>

#include "framework/device/cuda/reduce.cuh"
#include "layers/kernels/cuda/token_sort.h"

namespace delink::cuda {

inline constexpr int kDigitBits = 8;
inline constexpr int kDigits = 1 << kDigitBits;
inline constexpr int kSortWarps = kDigits / kWarp;  // in a block
inline constexpr int kSortThreads = kSortWarps * kWarp;

struct SortPass {
  int64_t n;
  int64_t segment;  // elements of a segment
  int64_t segments;
  int shift;               // of the digit
  int32_t first_token;     // TokenIds::first
  uint32_t V;              // TokenIds::V
  const int32_t* tokens;   // [n] in the first pass, else null
  const Occurrence* from;  // [n] in the others
  Occurrence* to;          // [n]
  uint32_t* counts;        // [kDigits, segments]
  uint32_t* before;        // [kDigits, segments]: in segments before
  uint32_t* totals;        // [kDigits]
};

// In the first pass.
__device__ inline int32_t TokenAt(const SortPass& s, int64_t i) {
  const auto id = static_cast<uint32_t>(s.tokens[i] - s.first_token);
  return static_cast<int32_t>(id < s.V ? id : s.V);
}
__device__ inline Occurrence OccurrenceAt(const SortPass& s, int64_t i) {
  if (s.tokens != nullptr) return {TokenAt(s, i), static_cast<int32_t>(i)};
  return s.from[i];
}
__device__ inline int DigitOf(const SortPass& s, int32_t token) {
  return (token >> s.shift) & (kDigits - 1);
}

// A warp a segment.
__global__ void __launch_bounds__(kSortThreads) CountDigits(SortPass s) {
  __shared__ uint32_t shared[kSortWarps][kDigits];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  uint32_t* const counts = shared[threadIdx.x / kWarp];
  const int64_t segment =
      int64_t{blockIdx.x} * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  if (segment >= s.segments) return;
  for (int digit = lane; digit < kDigits; digit += kWarp) counts[digit] = 0;
  __syncwarp();
  const int64_t end = std::min(s.n, (segment + 1) * s.segment);
  for (int64_t i = segment * s.segment + lane; i < end; i += kWarp) {
    const int32_t token = s.tokens != nullptr ? TokenAt(s, i) : s.from[i].token;
    atomicAdd(&counts[DigitOf(s, token)], 1U);
  }
  __syncwarp();
  for (int digit = lane; digit < kDigits; digit += kWarp) {
    s.counts[digit * s.segments + segment] = counts[digit];
  }
}

// A warp a digit.
__global__ void __launch_bounds__(kWarp) AddUpSegments(SortPass s) {
  const int lane = static_cast<int>(threadIdx.x);
  const uint32_t* const counts = s.counts + blockIdx.x * s.segments;
  uint32_t* const before = s.before + blockIdx.x * s.segments;
  uint32_t total = 0;
  for (int64_t first = 0; first < s.segments; first += kWarp) {
    const int64_t i = first + lane;
    const uint32_t count = i < s.segments ? counts[i] : 0;
    const uint32_t sum = WarpSumBefore(count);
    if (i < s.segments) before[i] = total + sum;
    total += __shfl_sync(kFullWarp, sum + count, kWarp - 1);
  }
  if (lane == 0) s.totals[blockIdx.x] = total;
}

// starts[digit] = occurrences of smaller digits, by the block's first warp:
// eight digits a lane.
__device__ inline void StartsOfDigits(const uint32_t* totals,
                                      uint32_t* starts) {
  constexpr int kEach = kDigits / kWarp;
  if (threadIdx.x < kWarp) {
    const int first = static_cast<int>(threadIdx.x) * kEach;
    uint32_t sum = 0;
    for (int i = 0; i < kEach; ++i) sum += totals[first + i];
    uint32_t start = WarpSumBefore(sum);
    for (int i = 0; i < kEach; ++i) {
      starts[first + i] = start;
      start += totals[first + i];
    }
  }
  __syncthreads();
}

// A warp moves a segment, 32 occurrences at a time, in order. `next` is where
// its next occurrence of each digit goes.
__global__ void __launch_bounds__(kSortThreads) MoveToDigits(SortPass s) {
  __shared__ uint32_t starts[kDigits];
  __shared__ uint32_t shared[kSortWarps][kDigits];
  StartsOfDigits(s.totals, starts);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  uint32_t* const next = shared[threadIdx.x / kWarp];
  const int64_t segment =
      int64_t{blockIdx.x} * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  if (segment >= s.segments) return;
  for (int digit = lane; digit < kDigits; digit += kWarp) {
    next[digit] = starts[digit] + s.before[digit * s.segments + segment];
  }
  const int64_t end = std::min(s.n, (segment + 1) * s.segment);
  for (int64_t first = segment * s.segment; first < end; first += kWarp) {
    const bool here = first + lane < end;
    Occurrence mine = {};
    if (here) mine = OccurrenceAt(s, first + lane);
    const int digit = DigitOf(s, mine.token);
    const unsigned peers =
        Peers(digit, kDigitBits, __ballot_sync(kFullWarp, here));
    const unsigned lower = peers & ((1U << lane) - 1);
    __syncwarp();
    const uint32_t start = next[digit];
    __syncwarp();
    if (!here) continue;
    s.to[start + __popc(lower)] = mine;
    if (lower == 0) next[digit] = start + __popc(peers);
  }
}

}  // namespace delink::cuda
