// Every op calls these first: they find the kernels for its tape.
//
// An op's FLOPs are the multiplications and additions of matmuls and attention.
// Pointwise work is bound by memory and counts as none.
#pragma once

#include <cstdint>

#include "framework/autograd/tape.h"
#include "layers/kernels/find_kernels.h"
#include "layers/kernels/kernel_list.h"

namespace delink::ops {

// The table for the device of `tape`, which must have one for `dtype`.
const Kernels& KernelsOf(const Tape& tape, DType dtype);

// The same for an op with its own kernels; `name` is for the message.
// The list must outlive the visit.
template <typename Table>
const Table& KernelsOf(const Tape& tape, DType dtype,
                       const KernelList<Table>& list, const char* name) {
  const Table* const kernels = FindIn(list, tape.device().kind(), dtype);
  DELINK_CHECK(kernels != nullptr)
      << name << " has no kernels for " << ToString(dtype) << " on "
      << tape.device().name() << ", only " << WhatIsIn(list)
      << ": add them to its list, or choose another run.precision";
  return *kernels;
}

// The elements of a tensor or value of integers.
template <typename T>
int32_t* Ints(const T& x) {
  return static_cast<int32_t*>(x.data());
}

// Product of all dimensions but the last: the rows of x.
inline int64_t RowsOf(const Shape& shape) {
  int64_t rows = 1;
  for (int axis = 0; axis + 1 < shape.rank(); ++axis) rows *= shape[axis];
  return rows;
}

}  // namespace delink::ops
