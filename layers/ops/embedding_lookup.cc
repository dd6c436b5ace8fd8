#include "layers/ops/embedding_lookup.h"

#include <cstdint>

#include "layers/ops/kernels_of.h"

namespace delink::ops {
namespace {

const int32_t* Ids(Var tokens) {
  return static_cast<const int32_t*>(tokens.data());
}

// Whether the gradient is kept in bf16.
bool Narrow(const Param::GradTarget& gradient) {
  return gradient.value.dtype() == DType::kBF16;
}

const Kernels& KernelsFor(Backward& back, const Tensor& dy) {
  const Kernels* const kernels = FindKernels(back.device().kind(), dy.dtype());
  DELINK_CHECK(kernels != nullptr) << ToString(dy.dtype());
  return *kernels;
}

// The rows of a table that this rank has, if it does not have all.
struct Part {
  int64_t first = 0;
  bool partial = false;
};

// Gradient of a table from which `rows` [N] were looked up.
void TableGrad(Backward& back, const int32_t* rows, const Tensor& dy,
               Param& table, Part part = {}) {
  const Param::GradTarget d = table.TakeGradAsKept();
  KernelsFor(back, dy).embedding_backward_weight(back.stream(),
                                                 {.N = dy.dim(0) * dy.dim(1),
                                                  .D = table.shape()[1],
                                                  .V = table.shape()[0],
                                                  .tokens = rows,
                                                  .dy = dy.data(),
                                                  .dw = d.value.data(),
                                                  .accumulate = d.accumulate,
                                                  .narrow = Narrow(d),
                                                  .first_token = part.first,
                                                  .partial = part.partial});
}

// The positions of a visit's tokens.
struct Places {
  int64_t first_position;
  const int32_t* positions;  // of each token, or null
};

void PositionGrad(Backward& back, const Places& at, const Tensor& dy,
                  Param& p) {
  if (at.positions != nullptr) return TableGrad(back, at.positions, dy, p);
  const Param::GradTarget dp = p.TakeGradAsKept();
  KernelsFor(back, dy).embedding_backward_position(
      back.stream(), {.B = dy.dim(0),
                      .T = dy.dim(1),
                      .D = p.shape()[1],
                      .Tmax = p.shape()[0],
                      .first_position = at.first_position,
                      .dy = dy.data(),
                      .dp = dp.value.data(),
                      .accumulate = dp.accumulate,
                      .narrow = Narrow(dp)});
}

// The positions of the rows of x.
Places PlacesOf(Var x) {
  const Tape& tape = x.tape();
  const VisitInputs& inputs = tape.inputs();
  if (!tape.groups().sequence) {
    return {inputs.first_position, inputs.positions};
  }
  DELINK_CHECK(inputs.positions != nullptr) << "rows of ranks";
  return {0, inputs.positions + tape.groups().tensor->rank() * x.dim(1)};
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
                          .tokens = Ids(tokens),
                          .w = w.weight().data(),
                          .p = p != nullptr ? p->weight().data() : nullptr,
                          .y = y.data()});
  const Places at = {first_position, positions};
  tape.Record({.name = "embedding",
               .inputs = {tokens},
               .outputs = {y},
               .saves = {tokens},
               .by_token = true,
               .weight =
                   [=, &w](Backward& back) {
                     const Tensor dy = back.grad(y);
                     TableGrad(back, Ids(tokens), dy, w);
                     if (p != nullptr) PositionGrad(back, at, dy, *p);
                   }},
              /*trains=*/true);
  return y;
}

Var EmbeddingPart(Var tokens, Param& w, int64_t first_token) {
  Tape& tape = tokens.tape();
  const int64_t B = tokens.dim(0), T = tokens.dim(1), D = w.shape()[1];
  DELINK_CHECK(tokens.dtype() == DType::kI32);
  const DType dtype = w.weight().dtype();
  const Var y = tape.Output({B, T, D}, dtype);
  KernelsOf(tape, dtype)
      .embedding_forward(tape.stream(), {.B = B,
                                         .T = T,
                                         .D = D,
                                         .V = w.shape()[0],
                                         .tokens = Ids(tokens),
                                         .w = w.weight().data(),
                                         .p = nullptr,
                                         .y = y.data(),
                                         .first_token = first_token,
                                         .partial = true});
  tape.Record({.name = "embedding_part",
               .inputs = {tokens},
               .outputs = {y},
               .saves = {tokens},
               .by_token = true,
               .weight =
                   [=, &w](Backward& back) {
                     TableGrad(back, Ids(tokens), back.grad(y), w,
                               {.first = first_token, .partial = true});
                   }},
              /*trains=*/true);
  return y;
}

Var AddPositions(Var x, Param& p) {
  Tape& tape = x.tape();
  const int64_t B = x.dim(0), T = x.dim(1), D = x.dim(2);
  DELINK_CHECK_EQ(p.shape()[1], D);
  const Places at = PlacesOf(x);
  const Kernels& kernels = KernelsOf(tape, x.dtype());
  const Var y = tape.Output(x.shape(), x.dtype());
  const int64_t sample = T * D * SizeOf(x.dtype());
  const auto row = [](const void* of, int64_t bytes) {
    return static_cast<const char*>(of) + bytes;
  };
  if (at.positions != nullptr) {
    kernels.embedding_forward(tape.stream(), {.B = B,
                                              .T = T,
                                              .D = D,
                                              .V = p.shape()[0],
                                              .tokens = at.positions,
                                              .w = p.weight().data(),
                                              .p = nullptr,
                                              .y = y.data()});
    kernels.add(
        tape.stream(),
        {.count = B * T * D, .a = x.data(), .b = y.data(), .y = y.data()});
  } else {
    DELINK_CHECK_LE(at.first_position + T, p.shape()[0])
        << "more positions than the model has";
    const int64_t first = at.first_position * D * SizeOf(x.dtype());
    for (int64_t b = 0; b < B; ++b) {
      kernels.add(tape.stream(),
                  {.count = T * D,
                   .a = row(x.data(), b * sample),
                   .b = row(p.weight().data(), first),
                   .y = static_cast<char*>(y.data()) + b * sample});
    }
  }
  tape.Record({.name = "add_positions",
               .inputs = {x},
               .outputs = {y},
               .by_token = true,
               .own_rows = true,
               .input =
                   [=](Backward& back) {
                     if (x.needs_grad()) back.PassGrad(y, x);
                   },
               .weight =
                   [=, &p](Backward& back) {
                     PositionGrad(back, at, back.grad(y), p);
                   }},
              /*trains=*/true);
  return y;
}

}  // namespace delink::ops
