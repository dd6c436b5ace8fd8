// Gaussian error linear unit (Hendrycks and Gimpel, 2016), exact or with tanh.
#pragma once

#include "framework/autograd/tape.h"
#include "layers/kernels/arguments.h"

namespace delink::ops {

Var Gelu(Var x, GeluForm form);
// Records y = gelu(x) for an op whose kernel computes y from the value before
// it is rounded to x. Recompute makes y from the rounded x, so the two may
// differ by this rounding.
void RecordGelu(Var x, Var y, GeluForm form);

}  // namespace delink::ops
