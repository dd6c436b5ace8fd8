#include "layers/ops/rms_norm.h"

#include "layers/ops/kernels_of.h"

namespace delink::ops {
namespace {

struct Saved {
  int64_t N, D;
  double eps;
  Var x, y, rstd;
};

// `rstd`: where to put it, or null.
void Forward(Stream& stream, const Saved& s, const Param& w, const Tensor& y,
             void* rstd) {
  KernelsOf(s.x.tape(), s.x.dtype())
      .rms_norm_forward(stream, {.N = s.N,
                                 .D = s.D,
                                 .eps = s.eps,
                                 .x = s.x.data(),
                                 .w = w.weight().data(),
                                 .y = y.data(),
                                 .rstd = rstd});
}

void InputGrad(Backward& back, const Saved& s, const Param& w) {
  if (!s.x.needs_grad()) return;
  KernelsOf(s.x.tape(), s.x.dtype())
      .rms_norm_backward_input(back.stream(), {.N = s.N,
                                               .D = s.D,
                                               .dy = back.grad(s.y).data(),
                                               .x = s.x.data(),
                                               .w = w.weight().data(),
                                               .rstd = s.rstd.data(),
                                               .dx = back.NewGrad(s.x).data()});
}

void WeightGrad(Backward& back, const Saved& s, Param& w) {
  const Param::GradTarget dw = w.TakeGrad();
  KernelsOf(s.x.tape(), s.x.dtype())
      .rms_norm_backward_weight(back.stream(), {.N = s.N,
                                                .D = s.D,
                                                .dy = back.grad(s.y).data(),
                                                .x = s.x.data(),
                                                .rstd = s.rstd.data(),
                                                .dw = dw.value.data(),
                                                .accumulate = dw.accumulate});
}

}  // namespace

Var RmsNorm(Var x, Param& w, double eps) {
  Saved s{.N = RowsOf(x.shape()), .D = x.dim(-1), .eps = eps, .x = x};
  DELINK_CHECK_EQ(w.shape(), (Shape{s.D}));
  Tape& tape = x.tape();
  s.y = tape.Output(x.shape(), x.dtype());
  const bool recording = tape.recording();
  if (recording) s.rstd = tape.Output({s.N}, StatisticsOf(x.dtype()));
  Forward(tape.stream(), s, w, s.y.value(),
          recording ? s.rstd.data() : nullptr);
  OpRecord op{.name = "rms_norm", .inputs = {x}, .outputs = {s.y}};
  if (recording) {
    op.saves = {x, s.rstd};
    op.input = [=, &w](Backward& back) { InputGrad(back, s, w); };
    op.weight = [=, &w](Backward& back) { WeightGrad(back, s, w); };
    op.remake = [=, &w](Backward& back, const Tensor& y) {
      Forward(back.stream(), s, w, y, nullptr);
    };
  }
  tape.Record(std::move(op), /*trains=*/true);
  return s.y;
}

}  // namespace delink::ops
