// The matmul peak of this machine, to which training speed is compared.
#pragma once

#include <cstdint>

#include "framework/device/backend.h"
#include "framework/tensor/dtype.h"

namespace delink {

// Fills device memory with varied numbers of magnitude 1/16 to 1; of either
// sign, or positive. The bytes are valid as bf16, and as f32 and f64, whose
// upper half has such a pattern. None is denormal, because denormals slow
// arithmetic down. They vary, because a GPU needs less power, and so less time,
// for products of equal numbers. Completes before it returns.
void FillWithNumbers(Device& device, Stream& stream, void* memory,
                     int64_t bytes, bool positive = false);

// FLOP/s of a matmul [size, size] x [size, size] in f32 or bf16 on this
// process's threads: the best of repetitions that take `seconds` in all. The
// default size suits the caches.
double MeasureMatmulPeak(DType dtype, int64_t size = 768,
                         double seconds = 0.05);

// The same on `device`, of [rows, size] x [size, size] if `rows` is given; 0 if
// the matrices do not fit.
double MeasureMatmulPeak(Device& device, DType dtype, int64_t size,
                         double seconds, int64_t rows = 0);

// The peak for runs on `device`. On a GPU the matrices are so large that a
// product takes a millisecond.
double RunMatmulPeak(Device& device, DType dtype);

}  // namespace delink
