#include "layers/ops/embedding_lookup.h"

#include <cstdint>

#include "layers/ops/kernels_of.h"

namespace delink::ops {
namespace {

// Whether the gradient is kept in bf16.
bool Narrow(const Param::GradTarget& gradient) {
  return gradient.value.dtype() == DType::kBF16;
}

// Of the table whose rows were taken by `rows` [N].
void TableGrad(Backward& back, const Kernels& kernels, const int32_t* rows,
               const Tensor& dy, Param& table) {
  const Param::GradTarget d = table.TakeGradAsKept();
  kernels.embedding_backward_weight(back.stream(), {.N = dy.dim(0) * dy.dim(1),
                                                    .D = table.shape()[1],
                                                    .V = table.shape()[0],
                                                    .tokens = rows,
                                                    .dy = dy.data(),
                                                    .dw = d.value.data(),
                                                    .accumulate = d.accumulate,
                                                    .narrow = Narrow(d)});
}

void WeightGrad(Backward& back, int64_t first_position,
                const int32_t* positions, Var tokens, Var y, Param& w,
                Param* p) {
  const Kernels& kernels = KernelsOf(y.tape(), y.dtype());
  const Tensor dy = back.grad(y);
  TableGrad(back, kernels, static_cast<const int32_t*>(tokens.data()), dy, w);
  if (p == nullptr) return;
  if (positions != nullptr) return TableGrad(back, kernels, positions, dy, *p);
  const Param::GradTarget dp = p->TakeGradAsKept();
  kernels.embedding_backward_position(back.stream(),
                                      {.B = tokens.dim(0),
                                       .T = tokens.dim(1),
                                       .D = p->shape()[1],
                                       .Tmax = p->shape()[0],
                                       .first_position = first_position,
                                       .dy = dy.data(),
                                       .dp = dp.value.data(),
                                       .accumulate = dp.accumulate,
                                       .narrow = Narrow(dp)});
}

}  // namespace

Var EmbeddingLookup(Var tokens, Param& w, Param* p) {
  Tape& tape = tokens.tape();
  const int64_t B = tokens.dim(0), T = tokens.dim(1);
  const int64_t V = w.shape()[0], D = w.shape()[1];
  const int64_t first_position = tape.inputs().first_position;
  const int32_t* const positions = tape.inputs().positions;
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
                          .positions = positions,
                          .tokens = static_cast<const int32_t*>(tokens.data()),
                          .w = w.weight().data(),
                          .p = p != nullptr ? p->weight().data() : nullptr,
                          .y = y.data()});
  tape.Record({.name = "embedding",
               .inputs = {tokens},
               .outputs = {y},
               .saves = {tokens},
               .by_token = true,
               .weight =
                   [=, &w](Backward& back) {
                     WeightGrad(back, first_position, positions, tokens, y, w,
                                p);
                   }},
              /*trains=*/true);
  return y;
}

}  // namespace delink::ops
