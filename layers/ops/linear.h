// y = x w^T (+ b), over the last axis.
#pragma once

#include "framework/autograd/tape.h"
#include "framework/module/param.h"
#include "layers/kernels/arguments.h"

namespace delink::ops {

// x [..., in], w [out, in], b [out] or null; y [..., out]. With w.rest() its
// rows come behind those of w, and b's likewise.
Var Linear(Var x, Param& w, Param* b);

// A value and its GELU, which the same kernel makes of it where the device has
// one.
struct Activated {
  Var pre, value;
  GeluForm form;
};
// pre = x w^T (+ b); w has no rest().
Activated LinearGelu(Var x, Param& w, Param* b, GeluForm form);
// Of x.value; the gradient goes to x.pre at once.
Var Linear(const Activated& x, Param& w, Param* b);

}  // namespace delink::ops
