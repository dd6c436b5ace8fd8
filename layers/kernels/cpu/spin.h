// How OpenMP's threads wait for work; without it (no_openmp/) there are none.
#pragma once

namespace delink::cpu {

// Has threads that wait spin for a moment and then sleep: on a busy machine one
// that spins takes the core from whom it waits for. What the environment says
// (OMP_WAIT_POLICY, GOMP_SPINCOUNT, KMP_BLOCKTIME, KMP_LIBRARY) stands. OpenMP
// reads that before main, so the process begins again, once, with variables
// set; where it cannot, it goes on as it is. First thing in main, with its
// argv.
void SpinBriefly(char** argv);

}  // namespace delink::cpu
