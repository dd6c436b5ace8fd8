#include "layers/ops/dropout.h"

#include "layers/ops/kernels_of.h"

namespace delink::ops {
namespace {

// x has `rows` of all ranks' [B, T] tokens, from number first_row on.
struct Place {
  int64_t B, T, first_row, rows;
};

Place PlaceOf(Var x) {
  const Tape& tape = x.tape();
  if (!tape.groups().sequence || RowsOf(x.shape()) == tape.tokens()) {
    return {x.dim(0), x.dim(1), 0, -1};
  }
  const VisitGroup& group = *tape.groups().tensor;
  const int64_t B = tape.inputs().sequences, rows = x.dim(1);
  DELINK_CHECK(x.dim(0) == 1 && B > 0 && group.size() * rows == tape.tokens())
      << x.shape() << " are neither all tokens nor a rank's own rows of "
      << tape.tokens();
  return {B, tape.tokens() / B, group.rank() * rows, rows};
}

// From x to y, which is of its shape.
void Drop(Var x, Stream& stream, DropoutArgs args, const void* from, void* to) {
  const Tape& tape = x.tape();
  const Kernels& kernels = KernelsOf(tape, x.dtype());
  const ColumnCut* const cut = tape.columns(x);
  args.x = from;
  args.y = to;
  if (cut == nullptr) return kernels.dropout(stream, args);
  args.width = cut->whole();
  args.pitch = x.dim(2);
  int64_t offset = 0;
  for (const ColumnPiece& piece : cut->pieces) {
    args.D = piece.count;
    args.first_column = piece.matrix + piece.first;
    args.x = static_cast<const char*>(from) + offset * SizeOf(x.dtype());
    args.y = static_cast<char*>(to) + offset * SizeOf(x.dtype());
    kernels.dropout(stream, args);
    offset += piece.count;
  }
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
  const DropoutArgs args{.B = place.B,
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
                         .x = nullptr,
                         .y = nullptr};
  Drop(x, tape.stream(), args, x.data(), y.data());
  tape.Record({.name = "dropout",
               .inputs = {x},
               .outputs = {y},
               .by_token = true,
               .own_rows = true,
               .input = [=](Backward& back) {
                 if (!x.needs_grad()) return;
                 Drop(x, back.stream(), args, back.grad(y).data(),
                      back.NewGrad(x).data());
               }});
  return y;
}

}  // namespace delink::ops
