// How fast this machine multiplies matrices: the speed of light that training
// speed is quoted against.
#pragma once

#include <cstdint>

#include "framework/device/backend.h"
#include "framework/tensor/dtype.h"

namespace delink {

// Fills device memory with numbers of either sign, or of none, between 1/16 and
// 1: as bf16, and also as f32 and f64, whose upper half is the like. None is
// denormal, which would slow arithmetic down, and they vary: products of equal
// numbers take a GPU less power, and so less time. Done on return.
void FillWithNumbers(Device& device, Stream& stream, void* memory,
                     int64_t bytes, bool positive = false);

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
