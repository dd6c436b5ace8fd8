#include "layers/ops/gelu.h"

#include "layers/ops/kernels_of.h"

namespace delink::ops {

Var Gelu(Var x, GeluForm form) {
  Tape& tape = x.tape();
  const int64_t count = x.shape().elements();
  const Var y = tape.Output(x.shape(), x.dtype());
  KernelsOf(tape, x.dtype())
      .gelu_forward(
          tape.stream(),
          {.count = count, .form = form, .x = x.data(), .y = y.data()});
  tape.Record({.name = "gelu",
               .inputs = {x},
               .outputs = {y},
               .saves = {x},
               .input = [=](Backward& back) {
                 if (!x.needs_grad()) return;
                 KernelsOf(x.tape(), x.dtype())
                     .gelu_backward(back.stream(),
                                    {.count = count,
                                     .form = form,
                                     .dy = back.grad(y).data(),
                                     .x = x.data(),
                                     .dx = back.NewGrad(x).data()});
               }});
  return y;
}

}  // namespace delink::ops
