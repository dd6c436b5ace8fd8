// The fast kernels of the CPU.
#pragma once

#include "layers/kernels/kernels.h"

namespace delink::cpu {

// The table for this machine, chosen once. T is float or BFloat16.
template <typename T>
const Kernels& Table();

}  // namespace delink::cpu
