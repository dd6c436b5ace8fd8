#include "layers/ops/dropout.h"

#include "layers/ops/kernels_of.h"

namespace delink::ops {
namespace {

// Of the [B, T] tokens of all ranks x has `rows` from number first_row on.
struct Place {
  int64_t B, T, first_row, rows;
};

Place PlaceOf(Var x) {
  const Tape& tape = x.tape();
  if (!tape.groups().sequence) return {x.dim(0), x.dim(1), 0, -1};
  const VisitGroup& group = *tape.groups().tensor;
  const int64_t B = tape.inputs().sequences, rows = x.dim(1);
  DELINK_CHECK(x.dim(0) == 1 && B > 0 && group.size() * rows % B == 0)
      << x.shape() << " are not a rank's own rows of " << B << " sequences";
  return {B, group.size() * rows / B, group.rank() * rows, rows};
}

}  // namespace

Var Dropout(Var x, double rate, uint64_t name_hash) {
  DELINK_CHECK(rate >= 0 && rate < 1) << rate;
  Tape& tape = x.tape();
  const VisitInputs& inputs = tape.inputs();
  if (!inputs.training || rate == 0) return x;
  DELINK_CHECK_EQ(x.shape().rank(), 3);
  const Place place = PlaceOf(x);
  DELINK_CHECK(inputs.step_key != nullptr && inputs.samples != nullptr);
  const Var y = tape.Output(x.shape(), x.dtype());
  DropoutArgs args{.B = place.B,
                   .T = place.T,
                   .D = x.dim(2),
                   .rate = rate,
                   .step_key = inputs.step_key,
                   .name_hash = name_hash,
                   .sample = inputs.samples,
                   .first_position = inputs.first_position,
                   .places = inputs.places,
                   .first_row = place.first_row,
                   .rows = place.rows,
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
