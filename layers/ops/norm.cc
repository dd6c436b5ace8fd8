#include "layers/ops/norm.h"

#include <cstdint>
#include <span>
#include <utility>

#include "layers/ops/kernels_of.h"
#include "layers/ops/small_gradient.h"

namespace delink::ops {
namespace {

struct SavedNorm {
  int64_t N, D;
  double eps;
  Param* w;
  Param* b;              // null: RMS norm
  Var x, y, mean, rstd;  // no mean of an RMS norm
};

// Arguments that write y, without statistics.
LayerNormForwardArgs ForwardArgs(const SavedNorm& s, const Tensor& y) {
  return {.N = s.N,
          .D = s.D,
          .eps = s.eps,
          .x = s.x.data(),
          .w = s.w->weight().data(),
          .b = s.b != nullptr ? s.b->weight().data() : nullptr,
          .y = y.data()};
}

void Forward(const SavedNorm& s, Stream& stream,
             const LayerNormForwardArgs& args) {
  const Kernels& kernels = KernelsOf(s.x.tape(), s.x.dtype());
  if (s.b != nullptr) return kernels.layer_norm_forward(stream, args);
  kernels.rms_norm_forward(stream, {.N = args.N,
                                    .D = args.D,
                                    .eps = args.eps,
                                    .x = args.x,
                                    .w = args.w,
                                    .y = args.y,
                                    .rstd = args.rstd,
                                    .add = args.add,
                                    .sum = args.sum});
}

void InputGrad(Backward& back, const SavedNorm& s) {
  if (!s.x.needs_grad()) return;
  const Kernels& kernels = KernelsOf(s.x.tape(), s.x.dtype());
  const Backward::Addition dx = back.AddToGrad(s.x);
  const void* const dy = back.grad(s.y).data();
  const void* const w = s.w->weight().data();
  if (s.b != nullptr) {
    kernels.layer_norm_backward_input(back.stream(), {.N = s.N,
                                                      .D = s.D,
                                                      .dy = dy,
                                                      .x = s.x.data(),
                                                      .w = w,
                                                      .mean = s.mean.data(),
                                                      .rstd = s.rstd.data(),
                                                      .dx = dx.sum.data(),
                                                      .add = dx.before.data()});
    return;
  }
  kernels.rms_norm_backward_input(back.stream(), {.N = s.N,
                                                  .D = s.D,
                                                  .dy = dy,
                                                  .x = s.x.data(),
                                                  .w = w,
                                                  .rstd = s.rstd.data(),
                                                  .dx = dx.sum.data(),
                                                  .add = dx.before.data()});
}

void WeightGrad(Backward& back, const SavedNorm& s) {
  const Kernels& kernels = KernelsOf(s.x.tape(), s.x.dtype());
  const SmallGradient dw(back, *s.w);
  if (s.b == nullptr) {
    kernels.rms_norm_backward_weight(back.stream(),
                                     {.N = s.N,
                                      .D = s.D,
                                      .dy = back.grad(s.y).data(),
                                      .x = s.x.data(),
                                      .rstd = s.rstd.data(),
                                      .dw = dw.data(),
                                      .accumulate = dw.accumulate()});
    dw.Store();
    return;
  }
  const SmallGradient db(back, *s.b);
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

// The norm of x. If there are `terms`, the same kernel computes x as their sum.
Var Norm(Var x, std::span<const Var> terms, Param& w, Param* b, double eps) {
  SavedNorm s{.N = RowsOf(x.shape()),
              .D = x.dim(-1),
              .eps = eps,
              .w = &w,
              .b = b,
              .x = x};
  DELINK_CHECK_EQ(w.shape(), (Shape{s.D}));
  if (b != nullptr) DELINK_CHECK_EQ(b->shape(), (Shape{s.D}));
  Tape& tape = x.tape();
  s.y = tape.Output(x.shape(), x.dtype());
  LayerNormForwardArgs args = ForwardArgs(s, s.y.value());
  const bool recording = tape.recording();
  if (recording && b != nullptr) {
    s.mean = tape.Output({s.N}, StatisticsOf(x.dtype()));
    args.mean = s.mean.data();
  }
  if (recording) {
    s.rstd = tape.Output({s.N}, StatisticsOf(x.dtype()));
    args.rstd = s.rstd.data();
  }
  if (!terms.empty()) {
    args.x = terms[0].data();
    args.add = terms[1].data();
    args.sum = x.data();
  }
  Forward(s, tape.stream(), args);
  // Only from now on may the memory of the terms be reused.
  if (!terms.empty()) RecordAdd(terms[0], terms[1], x);
  OpRecord op{.name = b != nullptr ? "layer_norm" : "rms_norm",
              .inputs = {x},
              .outputs = {s.y},
              .by_token = true,
              .own_rows = true};
  if (recording) {
    op.saves = {x, s.rstd};
    if (b != nullptr) op.saves = {x, s.mean, s.rstd};
    op.input = [=](Backward& back) { InputGrad(back, s); };
    op.weight = [=](Backward& back) { WeightGrad(back, s); };
    op.remake = [=](Backward& back, const Tensor& y) {
      Forward(s, back.stream(), ForwardArgs(s, y));
    };
  }
  tape.Record(std::move(op), /*trains=*/true);
  return s.y;
}

SumAndNorm AddNorm(Var x, Var branch, Param& w, Param* b, double eps) {
  const Var sum = SumOf(x, branch);
  const Var terms[] = {x, branch};
  return {.sum = sum, .norm = Norm(sum, terms, w, b, eps)};
}

}  // namespace

Var LayerNorm(Var x, Param& w, Param& b, double eps) {
  return Norm(x, {}, w, &b, eps);
}

SumAndNorm AddLayerNorm(Var x, Var branch, Param& w, Param& b, double eps) {
  return AddNorm(x, branch, w, &b, eps);
}

Var RmsNorm(Var x, Param& w, double eps) {
  return Norm(x, {}, w, nullptr, eps);
}

SumAndNorm AddRmsNorm(Var x, Var branch, Param& w, double eps) {
  return AddNorm(x, branch, w, nullptr, eps);
}

}  // namespace delink::ops
