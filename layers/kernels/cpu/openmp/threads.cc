#include "layers/kernels/cpu/threads.h"

#include <omp.h>

namespace delink::cpu {

int MaxThreads() { return omp_get_max_threads(); }
void SetThreads(int threads) { omp_set_num_threads(threads); }
int ThreadIndex() { return omp_get_thread_num(); }

}  // namespace delink::cpu
