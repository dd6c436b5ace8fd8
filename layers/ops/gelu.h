// Gaussian error linear unit (Hendrycks and Gimpel, 2016), exact or by tanh.
#pragma once

#include "framework/autograd/tape.h"
#include "layers/kernels/arguments.h"

namespace delink::ops {

Var Gelu(Var x, GeluForm form);

}  // namespace delink::ops
