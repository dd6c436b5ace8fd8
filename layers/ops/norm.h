// Normalisation over the last axis: layer norm (Ba et al., 2016) and RMS norm
// (Zhang and Sennrich, 2019).
#pragma once

#include "framework/autograd/tape.h"
#include "framework/module/param.h"
#include "layers/ops/add.h"

namespace delink::ops {

// y = (x - mean) / sqrt(variance + eps) * w + b. x [..., D], w [D], b [D].
Var LayerNorm(Var x, Param& w, Param& b, double eps);
// x + branch and its layer norm, in one kernel.
SumAndNorm AddLayerNorm(Var x, Var branch, Param& w, Param& b, double eps);

// y = x / sqrt(mean(x^2) + eps) * w. x [..., D], w [D].
Var RmsNorm(Var x, Param& w, double eps);
// x + branch and its RMS norm, in one kernel.
SumAndNorm AddRmsNorm(Var x, Var branch, Param& w, double eps);

}  // namespace delink::ops
