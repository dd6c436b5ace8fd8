// What the kernels ask of OpenMP; without it (no_openmp/) there is one thread.
#pragma once

#include <cstdint>

namespace delink::cpu {

// Less work than this is done by the calling thread alone: waking a team costs
// some microseconds on idle cores, and milliseconds on busy ones. Elements of
// pointwise work and of norms; multiply-adds of products. How work is shared
// never changes what is computed, so neither do these numbers.
inline constexpr int64_t kParallelFrom = 1 << 16;
inline constexpr int64_t kParallelProducts = 1 << 21;

// The size of the team that a parallel region of the calling thread would get;
// SetThreads changes it for this thread (without OpenMP it does nothing).
int MaxThreads();
void SetThreads(int threads);
// The calling thread's index in its team.
int ThreadIndex();

}  // namespace delink::cpu
