// Layer normalisation over the last axis (Ba et al., 2016).
#pragma once

#include "framework/autograd/tape.h"
#include "framework/module/param.h"
#include "layers/ops/add.h"

namespace delink::ops {

// y = (x - mean) / sqrt(variance + eps) * w + b. x [..., D], w [D], b [D].
Var LayerNorm(Var x, Param& w, Param& b, double eps);
// x + branch and its layer norm, by one kernel.
SumAndNorm AddLayerNorm(Var x, Var branch, Param& w, Param& b, double eps);

}  // namespace delink::ops
