#include "layers/ops/add.h"

#include "layers/ops/kernels_of.h"

namespace delink::ops {

Var Add(Var a, Var b) {
  Tape& tape = a.tape();
  const Var y = SumOf(a, b);
  KernelsOf(tape, a.dtype())
      .add(tape.stream(), {.count = a.shape().elements(),
                           .a = a.data(),
                           .b = b.data(),
                           .y = y.data()});
  RecordAdd(a, b, y);
  return y;
}

Var SumOf(Var a, Var b) {
  DELINK_CHECK_EQ(a.shape(), b.shape());
  DELINK_CHECK(a.dtype() == b.dtype());
  return a.tape().Output(a.shape(), a.dtype());
}

void RecordAdd(Var a, Var b, Var y) {
  a.tape().Record({.name = "add",
                   .inputs = {a, b},
                   .outputs = {y},
                   .by_token = true,
                   .own_rows = true,
                   .input = [=](Backward& back) {
                     back.PassGrad(y, a);
                     back.PassGrad(y, b);
                   }});
}

}  // namespace delink::ops
