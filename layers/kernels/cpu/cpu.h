// The fast kernels of the CPU.
#pragma once

#include "layers/kernels/kernels.h"

namespace delink::cpu {

// The table for this machine, chosen once. T is float or BFloat16.
template <typename T>
const Kernels& Table();

// Whether bf16 products use the processor's bf16 instructions.
bool MultipliesBf16();

}  // namespace delink::cpu
