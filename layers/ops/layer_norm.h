// Layer normalisation over the last axis (Ba et al., 2016).
#pragma once

#include "framework/autograd/tape.h"
#include "framework/module/param.h"

namespace delink::ops {

// y = (x - mean) / sqrt(variance + eps) * w + b. x [..., D], w [D], b [D].
Var LayerNorm(Var x, Param& w, Param& b, double eps);

}  // namespace delink::ops
