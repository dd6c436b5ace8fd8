// The CPU's matrix products. CMake chooses oneDNN (onednn/) or the vectorised
// kernels themselves (no_onednn/).
#pragma once

#include "layers/kernels/kernels.h"

namespace delink::cpu {

// May replace the matmul of `kernels`, a table for T = float or BFloat16.
template <typename T>
void ChooseMatmul(Kernels* kernels);

// find_kernels.h
template <typename T>
void (*LibraryMatmul())(Stream&, const MatmulArgs&);

// Whether its bf16 products use the processor's bf16 instructions.
bool LibraryMultipliesBf16();

}  // namespace delink::cpu
