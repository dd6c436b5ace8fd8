#include "layers/ops/dropout.h"

#include "layers/ops/kernels_of.h"

namespace delink::ops {

Var Dropout(Var x, double rate, uint64_t name_hash) {
  DELINK_CHECK(rate >= 0 && rate < 1) << rate;
  Tape& tape = x.tape();
  const VisitInputs& inputs = tape.inputs();
  if (!inputs.training || rate == 0) return x;
  DELINK_CHECK_EQ(x.shape().rank(), 3);
  DELINK_CHECK(inputs.step_key != nullptr && inputs.samples != nullptr);
  const Var y = tape.Output(x.shape(), x.dtype());
  DropoutArgs args{.B = x.dim(0),
                   .T = x.dim(1),
                   .D = x.dim(2),
                   .rate = rate,
                   .step_key = inputs.step_key,
                   .name_hash = name_hash,
                   .sample = inputs.samples,
                   .first_position = inputs.first_position,
                   .x = x.data(),
                   .y = y.data()};
  KernelsOf(tape, x.dtype()).dropout(tape.stream(), args);
  tape.Record({.name = "dropout",
               .inputs = {x},
               .outputs = {y},
               .by_token = true,
               .input = [=](Backward& back) mutable {
                 if (!x.needs_grad()) return;
                 args.x = back.grad(y).data();
                 args.y = back.NewGrad(x).data();
                 KernelsOf(x.tape(), x.dtype()).dropout(back.stream(), args);
               }});
  return y;
}

}  // namespace delink::ops
