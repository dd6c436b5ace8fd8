// Who multiplies matrices, as CMake chose: oneDNN (onednn/), or the vectorised
// kernels themselves (no_onednn/).
#pragma once

#include "layers/kernels/kernels.h"

namespace delink::cpu {

// Replaces the matmul of `kernels`, or leaves it.
void ChooseMatmul(Kernels* kernels);

}  // namespace delink::cpu
