// Sum of two values of the same shape; residual connections. Its backward costs
// nothing: both inputs get the memory of the output's gradient.
#pragma once

#include "framework/autograd/tape.h"

namespace delink {
namespace ops {

// y = a + b.
Var Add(Var a, Var b);
// For an op whose kernel adds on the way: y, which is yet to be written, and
// its record.
Var SumOf(Var a, Var b);
void RecordAdd(Var a, Var b, Var y);

// What a branch makes of the residual stream, and its norm (norm.h).
struct SumAndNorm {
  Var sum, norm;
};

}  // namespace ops

inline Var operator+(Var a, Var b) { return ops::Add(a, b); }

}  // namespace delink
