// The kernels' use of OpenMP; without it (no_openmp/) there is one thread.
#pragma once

#include <cstdint>

namespace delink::cpu {

// If there is less work, the calling thread does it alone, since waking a team
// costs some microseconds on idle cores and milliseconds on busy ones. Counts
// elements of pointwise work and of norms, and multiply-adds of products. These
// numbers never change results.
inline constexpr int64_t kParallelFrom = 1 << 16;
inline constexpr int64_t kParallelProducts = 1 << 21;

// The size of the team of a parallel region of the calling thread. SetThreads
// changes it for this thread; without OpenMP it does nothing.
int MaxThreads();
void SetThreads(int threads);
// The calling thread's index in its team.
int ThreadIndex();

}  // namespace delink::cpu
