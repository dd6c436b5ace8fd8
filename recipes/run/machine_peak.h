// How fast this machine multiplies matrices: the speed of light that training
// speed is quoted against.
#pragma once

#include <cstdint>

#include "framework/tensor/dtype.h"

namespace delink {

// FLOP/s of a matmul [size, size] x [size, size] in f32 or bf16 on this
// process's threads: the best of the runs that take `seconds` together. The
// size that is the default suits the caches.
double MeasureMatmulPeak(DType dtype, int64_t size = 768,
                         double seconds = 0.05);

}  // namespace delink
