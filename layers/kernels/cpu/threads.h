// What the kernels ask of OpenMP; without it (no_openmp/) there is one thread.
#pragma once

namespace delink::cpu {

// The size of the team that a parallel region of the calling thread would get;
// SetThreads changes it for this thread (without OpenMP it does nothing).
int MaxThreads();
void SetThreads(int threads);
// The calling thread's index in its team.
int ThreadIndex();

}  // namespace delink::cpu
