#include "layers/kernels/cpu/threads.h"

namespace delink::cpu {

int MaxThreads() { return 1; }
void SetThreads(int) {}
int ThreadIndex() { return 0; }

}  // namespace delink::cpu
