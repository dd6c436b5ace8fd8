#include "layers/ops/linear.h"

#include <cstdint>
#include <vector>

#include "layers/ops/gelu.h"
#include "layers/ops/kernels_of.h"
#include "layers/ops/small_gradient.h"

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

// What is multiplied: a value, or the GELU of `pre`, which then gets the
// gradient.
struct Input {
  Var x, pre;
  GeluForm form = {};

  bool needs_grad() const { return (pre.defined() ? pre : x).needs_grad(); }
  std::vector<Var> vars() const {
    return pre.defined() ? std::vector{x, pre} : std::vector{x};
  }
};

void InputGrad(Backward& back, Sizes s, const Input& in, Var y,
               const Param& w) {
  if (!in.needs_grad()) return;
  const Kernels& kernels = KernelsOf(y.tape(), y.dtype());
  const Var of = in.pre.defined() ? in.pre : in.x;
  const MatmulArgs product = {.m = s.N,
                              .n = s.in,
                              .k = s.out,
                              .a = back.grad(y).data(),
                              .lda = s.out,
                              .b = w.weight().data(),
                              .ldb = s.in,
                              .c = back.NewGrad(of).data(),
                              .ldc = s.in};
  if (in.pre.defined()) {
    kernels.matmul_gelu_backward(
        back.stream(),
        {.product = product, .form = in.form, .pre = in.pre.data()});
  } else {
    kernels.matmul(back.stream(), product);
  }
}

void WeightGrad(Backward& back, Sizes s, Var x, Var y, Param& w, Param* b) {
  const Kernels& kernels = KernelsOf(x.tape(), x.dtype());
  const Param::GradTarget dw = w.TakeGradAsKept();
  const bool narrow = dw.value.dtype() == DType::kBF16;
  const MatmulArgs product = {.m = s.out,
                              .n = s.in,
                              .k = s.N,
                              .transpose_a = true,
                              .a = back.grad(y).data(),
                              .lda = s.out,
                              .b = x.data(),
                              .ldb = s.in,
                              .c = dw.value.data(),
                              .ldc = s.in,
                              .accumulate = dw.accumulate,
                              .c_is_gradient = !narrow};
  if (b == nullptr) return kernels.matmul(back.stream(), product);
  if (narrow) {
    kernels.matmul(back.stream(), product);
    const SmallGradient db(back, *b);
    kernels.bias_grad(back.stream(), {.N = s.N,
                                      .D = s.out,
                                      .dy = product.a,
                                      .db = db.data(),
                                      .accumulate = db.accumulate()});
    return db.Store();
  }
  const Param::GradTarget db = b->TakeGrad();
  // Parameters of one slab: both written before in this step, or neither.
  DELINK_CHECK_EQ(dw.accumulate, db.accumulate);
  kernels.matmul_bias_grad(back.stream(),
                           {.product = product, .db = db.value.data()});
}

// x w^T (+ b) to y.
MatmulArgs ForwardProduct(Sizes s, Var x, Var y, const Param& w,
                          const Param* b) {
  return {.m = s.N,
          .n = s.out,
          .k = s.in,
          .transpose_b = true,
          .a = x.data(),
          .lda = s.in,
          .b = w.weight().data(),
          .ldb = s.in,
          .c = y.data(),
          .ldc = s.out,
          .bias = b != nullptr ? b->weight().data() : nullptr};
}

Sizes SizesOf(Var x, const Param& w, const Param* b) {
  DELINK_CHECK_EQ(w.shape().rank(), 2);
  const Sizes s{RowsOf(x.shape()), w.shape()[1], w.shape()[0]};
  DELINK_CHECK_EQ(x.dim(-1), s.in) << "x " << x.shape();
  DELINK_CHECK(x.dtype() == w.weight().dtype());
  if (b != nullptr) DELINK_CHECK_EQ(b->shape(), (Shape{s.out}));
  return s;
}

void Record(Sizes s, const Input& in, Var y, Param& w, Param* b) {
  const double flops = 2.0 * static_cast<double>(s.N * s.in * s.out);
  y.tape().Record(
      {.name = "linear",
       .inputs = in.vars(),
       .outputs = {y},
       .weight_saves = {in.x},
       .saves = in.pre.defined() ? std::vector{in.pre} : std::vector<Var>(),
       .by_token = true,
       .input = [=, &w](Backward& back) { InputGrad(back, s, in, y, w); },
       .weight = [=,
                  &w](Backward& back) { WeightGrad(back, s, in.x, y, w, b); },
       .flops = flops,
       .backward_flops = in.needs_grad() ? 2 * flops : flops,
       .weight_flops = flops},
      /*trains=*/true);
}

Var Multiply(const Input& in, Param& w, Param* b) {
  const Sizes s = SizesOf(in.x, w, b);
  Tape& tape = in.x.tape();
  const Var y = tape.Output(OutputShape(in.x.shape(), s.out), in.x.dtype());
  KernelsOf(tape, y.dtype())
      .matmul(tape.stream(), ForwardProduct(s, in.x, y, w, b));
  Record(s, in, y, w, b);
  return y;
}

}  // namespace

Var Linear(Var x, Param& w, Param* b) { return Multiply({.x = x}, w, b); }

Var Linear(const Activated& x, Param& w, Param* b) {
  return Multiply({.x = x.value, .pre = x.pre, .form = x.form}, w, b);
}

Activated LinearGelu(Var x, Param& w, Param* b, GeluForm form) {
  const Sizes s = SizesOf(x, w, b);
  Tape& tape = x.tape();
  const Shape shape = OutputShape(x.shape(), s.out);
  const Activated y = {.pre = tape.Output(shape, x.dtype()),
                       .value = tape.Output(shape, x.dtype()),
                       .form = form};
  KernelsOf(tape, x.dtype())
      .matmul_gelu(tape.stream(),
                   {.product = ForwardProduct(s, x, y.value, w, b),
                    .form = form,
                    .pre = y.pre.data()});
  // Both are there before the memory of x may be another's.
  Record(s, {.x = x}, y.pre, w, b);
  RecordGelu(y.pre, y.value, form);
  return y;
}

}  // namespace delink::ops
