// Gaussian error linear unit (Hendrycks and Gimpel, 2016), exact or by tanh.
#pragma once

#include "framework/autograd/tape.h"
#include "layers/kernels/arguments.h"

namespace delink::ops {

Var Gelu(Var x, GeluForm form);
// Records y = gelu(x), for an op whose kernel has made y of what it rounded to
// x: y is made again of x, and may then differ by what that rounding is worth.
void RecordGelu(Var x, Var y, GeluForm form);

}  // namespace delink::ops
