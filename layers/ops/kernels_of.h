// What every op begins with: the kernels of its tape.
//
// Ops state as their FLOPs the multiplications and additions of matmuls and
// attention. Pointwise work is bound by memory and counts as none.
#pragma once

#include "framework/autograd/tape.h"
#include "layers/kernels/find_kernels.h"

namespace delink::ops {

// The table for the device of `tape`, which must have one for `dtype`.
const Kernels& KernelsOf(const Tape& tape, DType dtype);

// Product of all dimensions but the last: the rows of x.
inline int64_t RowsOf(const Shape& shape) {
  int64_t rows = 1;
  for (int axis = 0; axis + 1 < shape.rank(); ++axis) rows *= shape[axis];
  return rows;
}

}  // namespace delink::ops
