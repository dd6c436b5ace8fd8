#include "layers/ops/linear.h"

#include <cstdint>
#include <vector>

#include "layers/ops/gelu.h"
#include "layers/ops/kernels_of.h"
#include "layers/ops/small_gradient.h"

namespace delink::ops {
namespace {

// N rows of x [N, in] to y [N, out]; w.rest() makes the last `rest` columns.
struct Sizes {
  int64_t N, in, out, rest;
};

Shape OutputShape(const Shape& x, int64_t out) {
  std::vector<int64_t> dims(x.dims().begin(), x.dims().end());
  dims.back() = out;
  return Shape(std::span<const int64_t>(dims));
}

// The left factor: a value, or the GELU of `pre`, which then gets the gradient.
struct Input {
  Var x, pre;
  GeluForm form = {};

  bool needs_grad() const { return (pre.defined() ? pre : x).needs_grad(); }
  std::vector<Var> vars() const {
    return pre.defined() ? std::vector{x, pre} : std::vector{x};
  }
};

// A matrix of parameters, which makes `out` columns of y from `first` on.
struct WeightPiece {
  Param* w;
  Param* b;  // null without
  int64_t first, out;

  void* Columns(const Tensor& y) const {
    return static_cast<char*>(y.data()) + first * SizeOf(y.dtype());
  }
};

// All pieces, one or two.
std::vector<WeightPiece> PiecesOf(Sizes s, Param& w, Param* b) {
  std::vector<WeightPiece> pieces = {{&w, b, 0, s.out - s.rest}};
  if (s.rest > 0) {
    pieces.push_back(
        {w.rest(), b != nullptr ? b->rest() : nullptr, s.out - s.rest, s.rest});
  }
  return pieces;
}

void InputGrad(Backward& back, Sizes s, const Input& in, Var y, Param& w) {
  if (!in.needs_grad()) return;
  const Kernels& kernels = KernelsOf(y.tape(), y.dtype());
  const Var of = in.pre.defined() ? in.pre : in.x;
  void* const dx = back.NewGrad(of).data();
  for (const WeightPiece& piece : PiecesOf(s, w, nullptr)) {
    const MatmulArgs product = {.m = s.N,
                                .n = s.in,
                                .k = piece.out,
                                .a = piece.Columns(back.grad(y)),
                                .lda = s.out,
                                .b = piece.w->weight().data(),
                                .ldb = s.in,
                                .c = dx,
                                .ldc = s.in,
                                .accumulate = piece.first > 0};
    if (in.pre.defined()) {
      kernels.matmul_gelu_backward(
          back.stream(),
          {.product = product, .form = in.form, .pre = in.pre.data()});
    } else {
      kernels.matmul(back.stream(), product);
    }
  }
}

// Computes the gradient of piece.w.
MatmulArgs WeightProduct(Sizes s, Var x, const Tensor& dy,
                         const WeightPiece& piece,
                         const Param::GradTarget& dw) {
  return {.m = piece.out,
          .n = s.in,
          .k = s.N,
          .transpose_a = true,
          .a = piece.Columns(dy),
          .lda = s.out,
          .b = x.data(),
          .ldb = s.in,
          .c = dw.value.data(),
          .ldc = s.in,
          .accumulate = dw.accumulate,
          .c_is_gradient = dw.value.dtype() != DType::kBF16};
}

// The pieces' columns of y are not contiguous in memory, so all are summed at
// once.
void BiasGrads(Backward& back, Sizes s, Var y,
               const std::vector<WeightPiece>& pieces) {
  const Kernels& kernels = KernelsOf(y.tape(), y.dtype());
  const Tensor sums = back.Scratch({s.out}, StatisticsOf(y.dtype()));
  kernels.bias_grad(
      back.stream(),
      {.N = s.N, .D = s.out, .dy = back.grad(y).data(), .db = sums.data()});
  for (const WeightPiece& piece : pieces) {
    const Tensor sum(piece.Columns(sums), sums.dtype(), {piece.out});
    AddSmallGradient(back, sum, *piece.b);
  }
}

void WeightGrad(Backward& back, Sizes s, Var x, Var y, Param& w, Param* b) {
  const Kernels& kernels = KernelsOf(x.tape(), x.dtype());
  const Tensor dy = back.grad(y);
  const std::vector<WeightPiece> pieces = PiecesOf(s, w, b);
  if (b == nullptr || pieces.size() > 1) {
    for (const WeightPiece& piece : pieces) {
      kernels.matmul(back.stream(),
                     WeightProduct(s, x, dy, piece, piece.w->TakeGradAsKept()));
    }
    if (b != nullptr) BiasGrads(back, s, y, pieces);
    return;
  }
  const Param::GradTarget dw = w.TakeGradAsKept();
  const MatmulArgs product = WeightProduct(s, x, dy, pieces[0], dw);
  if (!product.c_is_gradient) {
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

// x w^T (+ b) to columns of y.
MatmulArgs ForwardProduct(Sizes s, Var x, Var y, const WeightPiece& piece) {
  return {.m = s.N,
          .n = piece.out,
          .k = s.in,
          .transpose_b = true,
          .a = x.data(),
          .lda = s.in,
          .b = piece.w->weight().data(),
          .ldb = s.in,
          .c = piece.Columns(y.value()),
          .ldc = s.out,
          .bias = piece.b != nullptr ? piece.b->weight().data() : nullptr};
}

Sizes SizesOf(Var x, const Param& w, const Param* b) {
  DELINK_CHECK_EQ(w.shape().rank(), 2);
  Sizes s{RowsOf(x.shape()), w.shape()[1], w.shape()[0], 0};
  DELINK_CHECK_EQ(x.dim(-1), s.in) << "x " << x.shape();
  DELINK_CHECK(x.dtype() == w.weight().dtype());
  if (b != nullptr) DELINK_CHECK_EQ(b->shape(), (Shape{s.out}));
  if (w.rest() == nullptr) return s;
  s.rest = w.rest()->shape()[0];
  DELINK_CHECK_EQ(w.rest()->shape(), (Shape{s.rest, s.in}));
  if (b != nullptr) {
    DELINK_CHECK(b->rest() != nullptr);
    DELINK_CHECK_EQ(b->rest()->shape(), (Shape{s.rest}));
  }
  s.out += s.rest;
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
       .own_rows = true,
       .mixes_columns = true,
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
  for (const WeightPiece& piece : PiecesOf(s, w, b)) {
    KernelsOf(tape, y.dtype())
        .matmul(tape.stream(), ForwardProduct(s, in.x, y, piece));
  }
  Record(s, in, y, w, b);
  return y;
}

}  // namespace

Var Linear(Var x, Param& w, Param* b) { return Multiply({.x = x}, w, b); }

Var Linear(const Activated& x, Param& w, Param* b) {
  DELINK_CHECK(w.rest() == nullptr);
  return Multiply({.x = x.value, .pre = x.pre, .form = x.form}, w, b);
}

Activated LinearGelu(Var x, Param& w, Param* b, GeluForm form) {
  const Sizes s = SizesOf(x, w, b);
  DELINK_CHECK_EQ(s.rest, 0) << "a GELU is of columns of one matrix";
  Tape& tape = x.tape();
  const Shape shape = OutputShape(x.shape(), s.out);
  const Activated y = {.pre = tape.Output(shape, x.dtype()),
                       .value = tape.Output(shape, x.dtype()),
                       .form = form};
  KernelsOf(tape, x.dtype())
      .matmul_gelu(
          tape.stream(),
          {.product = ForwardProduct(s, x, y.value, PiecesOf(s, w, b).front()),
           .form = form,
           .pre = y.pre.data()});
  // Both outputs exist before the memory of x may be reused.
  Record(s, {.x = x}, y.pre, w, b);
  RecordGelu(y.pre, y.value, form);
  return y;
}

}  // namespace delink::ops
