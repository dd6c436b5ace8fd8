#include "layers/kernels/cpu/spin.h"

namespace delink::cpu {

void SpinBriefly(char**) {}

}  // namespace delink::cpu
