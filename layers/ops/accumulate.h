// Adds up gradients for a tape: the value of Tape::Env::accumulate.
#pragma once

#include "framework/autograd/tape.h"

namespace delink {

// y[n] += x[n], with the device's kernels. y may be x.
void Accumulate(Device& device, Stream& stream, DType dtype, void* y,
                const void* x, int64_t n);

}  // namespace delink
