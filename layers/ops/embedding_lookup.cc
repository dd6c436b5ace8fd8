#include "layers/ops/embedding_lookup.h"

#include "layers/ops/kernels_of.h"

namespace delink::ops {
namespace {

void WeightGrad(Backward& back, int64_t first_position, Var tokens, Var y,
                Param& w, Param* p) {
  const Kernels& kernels = KernelsOf(y.tape(), y.dtype());
  const Tensor dy = back.grad(y);
  const Param::GradTarget dw = w.TakeGrad();
  kernels.embedding_backward_weight(
      back.stream(), {.N = tokens.shape().elements(),
                      .D = w.shape()[1],
                      .V = w.shape()[0],
                      .tokens = static_cast<const int32_t*>(tokens.data()),
                      .dy = dy.data(),
                      .dw = dw.value.data(),
                      .accumulate = dw.accumulate});
  if (p == nullptr) return;
  const Param::GradTarget dp = p->TakeGrad();
  kernels.embedding_backward_position(back.stream(),
                                      {.B = tokens.dim(0),
                                       .T = tokens.dim(1),
                                       .D = p->shape()[1],
                                       .Tmax = p->shape()[0],
                                       .first_position = first_position,
                                       .dy = dy.data(),
                                       .dp = dp.value.data(),
                                       .accumulate = dp.accumulate});
}

}  // namespace

Var EmbeddingLookup(Var tokens, Param& w, Param* p) {
  Tape& tape = tokens.tape();
  const int64_t B = tokens.dim(0), T = tokens.dim(1);
  const int64_t V = w.shape()[0], D = w.shape()[1];
  const int64_t first_position = tape.inputs().first_position;
  DELINK_CHECK(tokens.dtype() == DType::kI32);
  if (p != nullptr) {
    DELINK_CHECK_EQ(p->shape()[1], D);
    DELINK_CHECK_LE(first_position + T, p->shape()[0])
        << "more positions than the model has";
  }
  const DType dtype = w.weight().dtype();
  const Var y = tape.Output({B, T, D}, dtype);
  KernelsOf(tape, dtype)
      .embedding_forward(tape.stream(),
                         {.B = B,
                          .T = T,
                          .D = D,
                          .V = V,
                          .first_position = first_position,
                          .tokens = static_cast<const int32_t*>(tokens.data()),
                          .w = w.weight().data(),
                          .p = p != nullptr ? p->weight().data() : nullptr,
                          .y = y.data()});
  tape.Record({.name = "embedding",
               .inputs = {tokens},
               .outputs = {y},
               .saves = {tokens},
               .weight =
                   [=, &w](Backward& back) {
                     WeightGrad(back, first_position, tokens, y, w, p);
                   }},
              /*trains=*/true);
  return y;
}

}  // namespace delink::ops
