#include "layers/ops/linear.h"

#include "layers/ops/kernels_of.h"

namespace delink::ops {
namespace {

// N rows of x [N, in] to y [N, out].
struct Sizes {
  int64_t N, in, out;
};

Shape OutputShape(const Shape& x, int64_t out) {
  std::vector<int64_t> dims(x.dims().begin(), x.dims().end());
  dims.back() = out;
  return Shape(std::span<const int64_t>(dims));
}

void InputGrad(Backward& back, Sizes s, Var x, Var y, const Param& w) {
  if (!x.needs_grad()) return;
  const Tensor dy = back.grad(y);
  KernelsOf(x.tape(), x.dtype())
      .matmul(back.stream(), {.m = s.N,
                              .n = s.in,
                              .k = s.out,
                              .a = dy.data(),
                              .lda = s.out,
                              .b = w.weight().data(),
                              .ldb = s.in,
                              .c = back.NewGrad(x).data(),
                              .ldc = s.in});
}

void WeightGrad(Backward& back, Sizes s, Var x, Var y, Param& w, Param* b) {
  const Kernels& kernels = KernelsOf(x.tape(), x.dtype());
  const Tensor dy = back.grad(y);
  const Param::GradTarget dw = w.TakeGrad();
  kernels.matmul(back.stream(), {.m = s.out,
                                 .n = s.in,
                                 .k = s.N,
                                 .transpose_a = true,
                                 .a = dy.data(),
                                 .lda = s.out,
                                 .b = x.data(),
                                 .ldb = s.in,
                                 .c = dw.value.data(),
                                 .ldc = s.in,
                                 .accumulate = dw.accumulate,
                                 .c_is_gradient = true});
  if (b == nullptr) return;
  const Param::GradTarget db = b->TakeGrad();
  kernels.bias_grad(back.stream(), {.N = s.N,
                                    .D = s.out,
                                    .dy = dy.data(),
                                    .db = db.value.data(),
                                    .accumulate = db.accumulate});
}

}  // namespace

Var Linear(Var x, Param& w, Param* b) {
  DELINK_CHECK_EQ(w.shape().rank(), 2);
  const Sizes s{RowsOf(x.shape()), w.shape()[1], w.shape()[0]};
  DELINK_CHECK_EQ(x.dim(-1), s.in) << "x " << x.shape();
  DELINK_CHECK(x.dtype() == w.weight().dtype());
  if (b != nullptr) DELINK_CHECK_EQ(b->shape(), (Shape{s.out}));
  Tape& tape = x.tape();
  const Var y = tape.Output(OutputShape(x.shape(), s.out), x.dtype());
  KernelsOf(tape, x.dtype())
      .matmul(tape.stream(),
              {.m = s.N,
               .n = s.out,
               .k = s.in,
               .transpose_b = true,
               .a = x.data(),
               .lda = s.in,
               .b = w.weight().data(),
               .ldb = s.in,
               .c = y.data(),
               .ldc = s.out,
               .bias = b != nullptr ? b->weight().data() : nullptr});
  const double flops = 2.0 * static_cast<double>(s.N * s.in * s.out);
  tape.Record(
      {.name = "linear",
       .inputs = {x},
       .outputs = {y},
       .saves = {x},
       .input = [=, &w](Backward& back) { InputGrad(back, s, x, y, w); },
       .weight = [=, &w](Backward& back) { WeightGrad(back, s, x, y, w, b); },
       .flops = flops,
       .backward_flops = x.needs_grad() ? 2 * flops : flops},
      /*trains=*/true);
  return y;
}

}  // namespace delink::ops
