#include "layers/kernels/cpu/spin.h"

namespace delink::cpu {

bool SpinBriefly() { return false; }

}  // namespace delink::cpu
