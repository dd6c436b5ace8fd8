// Who multiplies matrices, as CMake chose: oneDNN (onednn/), or the vectorised
// kernels themselves (no_onednn/).
#pragma once

#include "layers/kernels/kernels.h"

namespace delink::cpu {

// Replaces the matmul of `kernels`, a table for T = float or BFloat16, or
// leaves it.
template <typename T>
void ChooseMatmul(Kernels* kernels);

// Whether the processor's instructions for bf16 are put to use.
bool FastBf16Matmul();

}  // namespace delink::cpu
