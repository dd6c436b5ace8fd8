// How OpenMP's threads wait for work; without it (no_openmp/) there are none.
#pragma once

namespace delink::cpu {

// Makes waiting threads spin for a moment and then sleep. On a busy machine a
// spinning thread takes the core from the thread that it waits for. OpenMP
// reads the environment before main, so this sets variables for the process's
// restart. False: the environment sets OMP_WAIT_POLICY, GOMP_SPINCOUNT,
// KMP_BLOCKTIME or KMP_LIBRARY already, and nothing is changed.
bool SpinBriefly();

}  // namespace delink::cpu
