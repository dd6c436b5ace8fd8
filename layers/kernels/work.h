// The least work of a kernel call, for any implementation: its arithmetic, and
// each byte of its arguments that must be read or written, counted once. With
// the call's time it shows how near the kernel comes to the machine's peak.
//
// FLOPs are the multiplications and additions of matmuls and attention.
// Attention's backward counts the five products of an implementation that does
// not store the scores. All else is bound by memory and counts none. If an
// output is written only in part (an embedding's gradient that is added to),
// only that part counts. If rows hold several documents, only the device knows
// where these end, so attention counts whole rows: an upper bound.
#pragma once

#include "framework/device/work.h"
#include "framework/tensor/dtype.h"
#include "layers/kernels/kernels.h"

namespace delink {

// The work of a call with these arguments to the table of `dtype`.
#define DELINK_DECLARE_WORK(entry, Function) \
  Work WorkOf(const Function##Args& a, DType dtype);
DELINK_KERNELS(DELINK_DECLARE_WORK)
#undef DELINK_DECLARE_WORK

}  // namespace delink
