// Root-mean-square normalisation over the last axis (Zhang and Sennrich, 2019).
#pragma once

#include "framework/autograd/tape.h"
#include "framework/module/param.h"
#include "layers/ops/add.h"

namespace delink::ops {

// y = x / sqrt(mean(x^2) + eps) * w. x [..., D], w [D].
Var RmsNorm(Var x, Param& w, double eps);
// x + branch and its RMS norm, by one kernel.
SumAndNorm AddRmsNorm(Var x, Var branch, Param& w, double eps);

}  // namespace delink::ops
