// Who multiplies matrices, as CMake chose: oneDNN (onednn/), or the vectorised
// kernels themselves (no_onednn/).
#pragma once

#include "layers/kernels/kernels.h"

namespace delink::cpu {

// Replaces the matmul of `kernels`, a table for T = float or BFloat16, or
// leaves it.
template <typename T>
void ChooseMatmul(Kernels* kernels);

// find_kernels.h
template <typename T>
void (*LibraryMatmul())(Stream&, const MatmulArgs&);

// Whether its products of bf16 are by the processor's instructions for them.
bool LibraryMultipliesBf16();

}  // namespace delink::cpu
