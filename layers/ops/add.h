// Sum of two values of the same shape; residual connections. Its backward costs
// nothing: both inputs get the memory of the output's gradient.
#pragma once

#include "framework/autograd/tape.h"

namespace delink {
namespace ops {

// y = a + b.
Var Add(Var a, Var b);

}  // namespace ops

inline Var operator+(Var a, Var b) { return ops::Add(a, b); }

}  // namespace delink
