// y = x w^T (+ b), over the last axis.
#pragma once

#include "framework/autograd/tape.h"
#include "framework/module/param.h"
#include "layers/kernels/arguments.h"

namespace delink::ops {

// x [..., in], w [out, in], b [out] or null; y [..., out]. The rows of w.rest()
// follow those of w, and b.rest() follows b.
Var Linear(Var x, Param& w, Param* b);

// A value and its GELU. If the device has a fused kernel, it computes both.
struct Activated {
  Var pre, value;
  GeluForm form;
};
// pre = x w^T (+ b); w has no rest().
Activated LinearGelu(Var x, Param& w, Param* b, GeluForm form);
// x.value w^T (+ b); its backward writes the gradient of x.pre directly.
Var Linear(const Activated& x, Param& w, Param* b);

}  // namespace delink::ops
