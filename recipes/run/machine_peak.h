// How fast this machine multiplies matrices: the speed of light that training
// speed is quoted against.
#pragma once

#include <cstdint>

#include "framework/device/backend.h"
#include "framework/tensor/dtype.h"

namespace delink {

// FLOP/s of a matmul [size, size] x [size, size] in f32 or bf16 on this
// process's threads: the best of the runs that take `seconds` together. The
// size that is the default suits the caches.
double MeasureMatmulPeak(DType dtype, int64_t size = 768,
                         double seconds = 0.05);

// The same on `device`; 0 where it has no room for the matrices.
double MeasureMatmulPeak(Device& device, DType dtype, int64_t size,
                         double seconds);

// What a run on `device` is quoted against: on a GPU with matrices so large
// that a product takes a millisecond.
double RunMatmulPeak(Device& device, DType dtype);

}  // namespace delink
