#include "layers/ops/rms_norm.h"

#include <cstdint>
#include <span>
#include <utility>

#include "layers/ops/kernels_of.h"
#include "layers/ops/small_gradient.h"

namespace delink::ops {
namespace {

struct SavedRmsNorm {
  int64_t N, D;
  double eps;
  Var x, y, rstd;
};

// To y, without statistics.
RmsNormForwardArgs ForwardArgs(const SavedRmsNorm& s, const Param& w,
                               const Tensor& y) {
  return {.N = s.N,
          .D = s.D,
          .eps = s.eps,
          .x = s.x.data(),
          .w = w.weight().data(),
          .y = y.data()};
}

void InputGrad(Backward& back, const SavedRmsNorm& s, const Param& w) {
  if (!s.x.needs_grad()) return;
  const Backward::Addition dx = back.AddToGrad(s.x);
  KernelsOf(s.x.tape(), s.x.dtype())
      .rms_norm_backward_input(back.stream(), {.N = s.N,
                                               .D = s.D,
                                               .dy = back.grad(s.y).data(),
                                               .x = s.x.data(),
                                               .w = w.weight().data(),
                                               .rstd = s.rstd.data(),
                                               .dx = dx.sum.data(),
                                               .add = dx.before.data()});
}

void WeightGrad(Backward& back, const SavedRmsNorm& s, Param& w) {
  const Kernels& kernels = KernelsOf(s.x.tape(), s.x.dtype());
  const SmallGradient dw(back, w);
  kernels.rms_norm_backward_weight(back.stream(),
                                   {.N = s.N,
                                    .D = s.D,
                                    .dy = back.grad(s.y).data(),
                                    .x = s.x.data(),
                                    .rstd = s.rstd.data(),
                                    .dw = dw.data(),
                                    .accumulate = dw.accumulate()});
  dw.Store();
}

// Of x, which the same kernel makes the sum of `terms` where there are any.
Var Norm(Var x, std::span<const Var> terms, Param& w, double eps) {
  SavedRmsNorm s{.N = RowsOf(x.shape()), .D = x.dim(-1), .eps = eps, .x = x};
  DELINK_CHECK_EQ(w.shape(), (Shape{s.D}));
  Tape& tape = x.tape();
  s.y = tape.Output(x.shape(), x.dtype());
  RmsNormForwardArgs args = ForwardArgs(s, w, s.y.value());
  const bool recording = tape.recording();
  if (recording) {
    s.rstd = tape.Output({s.N}, StatisticsOf(x.dtype()));
    args.rstd = s.rstd.data();
  }
  if (!terms.empty()) {
    args.x = terms[0].data();
    args.add = terms[1].data();
    args.sum = x.data();
  }
  KernelsOf(tape, x.dtype()).rms_norm_forward(tape.stream(), args);
  // Only now may the memory of the terms be another's.
  if (!terms.empty()) RecordAdd(terms[0], terms[1], x);
  OpRecord op{
      .name = "rms_norm", .inputs = {x}, .outputs = {s.y}, .by_token = true};
  if (recording) {
    op.saves = {x, s.rstd};
    op.input = [=, &w](Backward& back) { InputGrad(back, s, w); };
    op.weight = [=, &w](Backward& back) { WeightGrad(back, s, w); };
    op.remake = [=, &w](Backward& back, const Tensor& y) {
      KernelsOf(s.x.tape(), s.x.dtype())
          .rms_norm_forward(back.stream(), ForwardArgs(s, w, y));
    };
  }
  tape.Record(std::move(op), /*trains=*/true);
  return s.y;
}

}  // namespace

Var RmsNorm(Var x, Param& w, double eps) { return Norm(x, {}, w, eps); }

SumAndNorm AddRmsNorm(Var x, Var branch, Param& w, double eps) {
  const Var sum = SumOf(x, branch);
  const Var terms[] = {x, branch};
  return {.sum = sum, .norm = Norm(sum, terms, w, eps)};
}

}  // namespace delink::ops
