// y = x w^T (+ b), over the last axis.
#pragma once

#include "framework/autograd/tape.h"
#include "framework/module/param.h"

namespace delink::ops {

// x [..., in], w [out, in], b [out] or null; y [..., out].
Var Linear(Var x, Param& w, Param* b);

}  // namespace delink::ops
