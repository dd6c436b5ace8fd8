// The fast kernels of the CPU, f32.
#pragma once

#include "layers/kernels/kernels.h"

namespace delink::cpu {

// The table for this machine, chosen once.
const Kernels& Table();

}  // namespace delink::cpu
