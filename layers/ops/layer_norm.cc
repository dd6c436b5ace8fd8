#include "layers/ops/layer_norm.h"

#include <cstdint>
#include <span>
#include <utility>

#include "layers/ops/kernels_of.h"
#include "layers/ops/small_gradient.h"

namespace delink::ops {
namespace {

struct SavedLayerNorm {
  int64_t N, D;
  double eps;
  Var x, y, mean, rstd;
};

// To y, without statistics.
LayerNormForwardArgs ForwardArgs(const SavedLayerNorm& s, const Param& w,
                                 const Param& b, const Tensor& y) {
  return {.N = s.N,
          .D = s.D,
          .eps = s.eps,
          .x = s.x.data(),
          .w = w.weight().data(),
          .b = b.weight().data(),
          .y = y.data()};
}

void InputGrad(Backward& back, const SavedLayerNorm& s, const Param& w) {
  if (!s.x.needs_grad()) return;
  const Backward::Addition dx = back.AddToGrad(s.x);
  KernelsOf(s.x.tape(), s.x.dtype())
      .layer_norm_backward_input(back.stream(), {.N = s.N,
                                                 .D = s.D,
                                                 .dy = back.grad(s.y).data(),
                                                 .x = s.x.data(),
                                                 .w = w.weight().data(),
                                                 .mean = s.mean.data(),
                                                 .rstd = s.rstd.data(),
                                                 .dx = dx.sum.data(),
                                                 .add = dx.before.data()});
}

void WeightGrad(Backward& back, const SavedLayerNorm& s, Param& w, Param& b) {
  const Kernels& kernels = KernelsOf(s.x.tape(), s.x.dtype());
  const SmallGradient dw(back, w), db(back, b);
  // Parameters of one slab: both written before in this step, or neither.
  DELINK_CHECK_EQ(dw.accumulate(), db.accumulate());
  kernels.layer_norm_backward_weight(back.stream(),
                                     {.N = s.N,
                                      .D = s.D,
                                      .dy = back.grad(s.y).data(),
                                      .x = s.x.data(),
                                      .mean = s.mean.data(),
                                      .rstd = s.rstd.data(),
                                      .dw = dw.data(),
                                      .db = db.data(),
                                      .accumulate = dw.accumulate()});
  dw.Store();
  db.Store();
}

// Of x, which the same kernel makes the sum of `terms` where there are any.
Var Norm(Var x, std::span<const Var> terms, Param& w, Param& b, double eps) {
  SavedLayerNorm s{.N = RowsOf(x.shape()), .D = x.dim(-1), .eps = eps, .x = x};
  DELINK_CHECK_EQ(w.shape(), (Shape{s.D}));
  DELINK_CHECK_EQ(b.shape(), (Shape{s.D}));
  Tape& tape = x.tape();
  s.y = tape.Output(x.shape(), x.dtype());
  LayerNormForwardArgs args = ForwardArgs(s, w, b, s.y.value());
  const bool recording = tape.recording();
  if (recording) {
    s.mean = tape.Output({s.N}, StatisticsOf(x.dtype()));
    s.rstd = tape.Output({s.N}, StatisticsOf(x.dtype()));
    args.mean = s.mean.data();
    args.rstd = s.rstd.data();
  }
  if (!terms.empty()) {
    args.x = terms[0].data();
    args.add = terms[1].data();
    args.sum = x.data();
  }
  KernelsOf(tape, x.dtype()).layer_norm_forward(tape.stream(), args);
  // Only now may the memory of the terms be another's.
  if (!terms.empty()) RecordAdd(terms[0], terms[1], x);
  OpRecord op{
      .name = "layer_norm", .inputs = {x}, .outputs = {s.y}, .by_token = true};
  if (recording) {
    op.saves = {x, s.mean, s.rstd};
    op.input = [=, &w](Backward& back) { InputGrad(back, s, w); };
    op.weight = [=, &w, &b](Backward& back) { WeightGrad(back, s, w, b); };
    op.remake = [=, &w, &b](Backward& back, const Tensor& y) {
      KernelsOf(s.x.tape(), s.x.dtype())
          .layer_norm_forward(back.stream(), ForwardArgs(s, w, b, y));
    };
  }
  tape.Record(std::move(op), /*trains=*/true);
  return s.y;
}

}  // namespace

Var LayerNorm(Var x, Param& w, Param& b, double eps) {
  return Norm(x, {}, w, b, eps);
}

SumAndNorm AddLayerNorm(Var x, Var branch, Param& w, Param& b, double eps) {
  const Var sum = SumOf(x, branch);
  const Var terms[] = {x, branch};
  return {.sum = sum, .norm = Norm(sum, terms, w, b, eps)};
}

}  // namespace delink::ops
