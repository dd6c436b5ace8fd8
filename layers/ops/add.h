// Sum of two values of the same shape, for residual connections. Its backward
// costs nothing: both inputs get the memory of the output's gradient.
#pragma once

#include "framework/autograd/tape.h"

namespace delink {
namespace ops {

// y = a + b.
Var Add(Var a, Var b);
// For an op whose kernel also computes the sum: SumOf allocates y, which the
// kernel writes, and RecordAdd records the addition.
Var SumOf(Var a, Var b);
void RecordAdd(Var a, Var b, Var y);

// The residual stream after a branch is added, and its norm (norm.h).
struct SumAndNorm {
  Var sum, norm;
};

}  // namespace ops

inline Var operator+(Var a, Var b) { return ops::Add(a, b); }

}  // namespace delink
