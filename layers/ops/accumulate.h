// Adds up gradients for a tape: what Tape::Env::accumulate is set to.
#pragma once

#include "framework/autograd/tape.h"

namespace delink {

// y[n] += x[n] by the kernels of the device. y may be x.
void Accumulate(Device& device, Stream& stream, DType dtype, void* y,
                const void* x, int64_t n);

}  // namespace delink
