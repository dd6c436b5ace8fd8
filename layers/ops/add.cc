#include "layers/ops/add.h"

#include "layers/ops/kernels_of.h"

namespace delink::ops {

Var Add(Var a, Var b) {
  DELINK_CHECK_EQ(a.shape(), b.shape());
  DELINK_CHECK(a.dtype() == b.dtype());
  Tape& tape = a.tape();
  const Var y = tape.Output(a.shape(), a.dtype());
  KernelsOf(tape, a.dtype())
      .add(tape.stream(), {.count = a.shape().elements(),
                           .a = a.data(),
                           .b = b.data(),
                           .y = y.data()});
  tape.Record({.name = "add",
               .inputs = {a, b},
               .outputs = {y},
               .input = [=](Backward& back) {
                 back.PassGrad(y, a);
                 back.PassGrad(y, b);
               }});
  return y;
}

}  // namespace delink::ops
