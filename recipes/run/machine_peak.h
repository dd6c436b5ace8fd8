// How fast this machine multiplies matrices: the speed of light that training
// speed is quoted against.
#pragma once

#include "framework/tensor/dtype.h"

namespace delink {

// FLOP/s of a matmul in f32 or bf16, of a size that suits the caches, on this
// process's threads: the best of a few short runs (about 50 ms in all).
double MeasureMatmulPeak(DType dtype);

}  // namespace delink
