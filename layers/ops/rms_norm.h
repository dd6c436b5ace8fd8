// Root-mean-square normalisation over the last axis (Zhang and Sennrich, 2019).
#pragma once

#include "framework/autograd/tape.h"
#include "framework/module/param.h"

namespace delink::ops {

// y = x / sqrt(mean(x^2) + eps) * w. x [..., D], w [D].
Var RmsNorm(Var x, Param& w, double eps);

}  // namespace delink::ops
