#include "layers/ops/gelu.h"

#include "layers/ops/kernels_of.h"

namespace delink::ops {

namespace {

void Forward(Stream& stream, Var x, GeluForm form, const Tensor& y) {
  KernelsOf(x.tape(), x.dtype())
      .gelu_forward(stream, {.count = x.shape().elements(),
                             .form = form,
                             .x = x.data(),
                             .y = y.data()});
}

}  // namespace

Var Gelu(Var x, GeluForm form) {
  Tape& tape = x.tape();
  const Var y = tape.Output(x.shape(), x.dtype());
  Forward(tape.stream(), x, form, y.value());
  RecordGelu(x, y, form);
  return y;
}

void RecordGelu(Var x, Var y, GeluForm form) {
  x.tape().Record({.name = "gelu",
                   .inputs = {x},
                   .outputs = {y},
                   .saves = {x},
                   .by_token = true,
                   .own_rows = true,
                   .input =
                       [=](Backward& back) {
                         if (!x.needs_grad()) return;
                         KernelsOf(x.tape(), x.dtype())
                             .gelu_backward(back.stream(),
                                            {.count = x.shape().elements(),
                                             .form = form,
                                             .dy = back.grad(y).data(),
                                             .x = x.data(),
                                             .dx = back.NewGrad(x).data()});
                       },
                   .remake =
                       [=](Backward& back, const Tensor& again) {
                         Forward(back.stream(), x, form, again);
                       }});
}

}  // namespace delink::ops
