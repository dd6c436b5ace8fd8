// What a call of a kernel has to do at the least, whoever carries it out:
// its arithmetic, and every byte of its arguments that must be read or written,
// once. Beside how long it took, that says how near it came to what the machine
// can do.
//
// FLOPs are the multiplications and additions of matmuls and attention, of
// attention's backward the five products that an implementation without whole
// scores makes; all else is bound by memory and counts none. Where outputs are
// written only in part (an embedding's gradient, added to), that part counts.
// Of rows that hold several documents, whose ends are known to the device
// alone, attention counts as that of whole rows: an upper bound.
#pragma once

#include "framework/tensor/dtype.h"
#include "layers/kernels/kernels.h"

namespace delink {

struct Work {
  const char* kernel = "";  // as Kernels (kernels.h) calls it
  double flops = 0;
  double read = 0;     // bytes
  double written = 0;  // bytes

  double bytes() const { return read + written; }
};

// Of a call with these arguments to the table of `dtype`.
#define DELINK_DECLARE_WORK(entry, Function) \
  Work WorkOf(const Function##Args& a, DType dtype);
DELINK_KERNELS(DELINK_DECLARE_WORK)
#undef DELINK_DECLARE_WORK

}  // namespace delink
