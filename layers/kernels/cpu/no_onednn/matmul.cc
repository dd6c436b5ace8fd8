#include "layers/kernels/cpu/matmul.h"

namespace delink::cpu {

void ChooseMatmul(Kernels*) {}

}  // namespace delink::cpu
