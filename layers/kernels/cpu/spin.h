// How OpenMP's threads wait for work; without it (no_openmp/) there are none.
#pragma once

namespace delink::cpu {

// Makes waiting threads spin for a moment and then sleep. On a busy machine a
// spinning thread takes the core from the thread that it waits for. If the
// environment sets OMP_WAIT_POLICY, GOMP_SPINCOUNT, KMP_BLOCKTIME or
// KMP_LIBRARY, nothing is changed. OpenMP reads these before main, so the
// process restarts itself once with variables set; if it cannot, it continues
// unchanged. Call it before all else in main, with its argv.
void SpinBriefly(char** argv);

}  // namespace delink::cpu
