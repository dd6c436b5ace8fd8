#include "layers/ops/layer_norm.h"

#include "layers/ops/kernels_of.h"

namespace delink::ops {
namespace {

struct Saved {
  int64_t N, D;
  double eps;
  Var x, y, mean, rstd;
};

// `mean` and `rstd`: where to put them, or null.
void Forward(Stream& stream, const Saved& s, const Param& w, const Param& b,
             const Tensor& y, void* mean, void* rstd) {
  KernelsOf(s.x.tape(), s.x.dtype())
      .layer_norm_forward(stream, {.N = s.N,
                                   .D = s.D,
                                   .eps = s.eps,
                                   .x = s.x.data(),
                                   .w = w.weight().data(),
                                   .b = b.weight().data(),
                                   .y = y.data(),
                                   .mean = mean,
                                   .rstd = rstd});
}

void InputGrad(Backward& back, const Saved& s, const Param& w) {
  if (!s.x.needs_grad()) return;
  KernelsOf(s.x.tape(), s.x.dtype())
      .layer_norm_backward_input(back.stream(),
                                 {.N = s.N,
                                  .D = s.D,
                                  .dy = back.grad(s.y).data(),
                                  .x = s.x.data(),
                                  .w = w.weight().data(),
                                  .mean = s.mean.data(),
                                  .rstd = s.rstd.data(),
                                  .dx = back.NewGrad(s.x).data()});
}

void WeightGrad(Backward& back, const Saved& s, Param& w, Param& b) {
  const Param::GradTarget dw = w.TakeGrad();
  const Param::GradTarget db = b.TakeGrad();
  // Parameters of one slab: both written before in this step, or neither.
  DELINK_CHECK_EQ(dw.accumulate, db.accumulate);
  KernelsOf(s.x.tape(), s.x.dtype())
      .layer_norm_backward_weight(back.stream(), {.N = s.N,
                                                  .D = s.D,
                                                  .dy = back.grad(s.y).data(),
                                                  .x = s.x.data(),
                                                  .mean = s.mean.data(),
                                                  .rstd = s.rstd.data(),
                                                  .dw = dw.value.data(),
                                                  .db = db.value.data(),
                                                  .accumulate = dw.accumulate});
}

}  // namespace

Var LayerNorm(Var x, Param& w, Param& b, double eps) {
  Saved s{.N = RowsOf(x.shape()), .D = x.dim(-1), .eps = eps, .x = x};
  DELINK_CHECK_EQ(w.shape(), (Shape{s.D}));
  DELINK_CHECK_EQ(b.shape(), (Shape{s.D}));
  Tape& tape = x.tape();
  s.y = tape.Output(x.shape(), x.dtype());
  const bool recording = tape.recording();
  if (recording) {
    s.mean = tape.Output({s.N}, StatisticsOf(x.dtype()));
    s.rstd = tape.Output({s.N}, StatisticsOf(x.dtype()));
  }
  Forward(tape.stream(), s, w, b, s.y.value(),
          recording ? s.mean.data() : nullptr,
          recording ? s.rstd.data() : nullptr);
  OpRecord op{.name = "layer_norm", .inputs = {x}, .outputs = {s.y}};
  if (recording) {
    op.saves = {x, s.mean, s.rstd};
    op.input = [=, &w](Backward& back) { InputGrad(back, s, w); };
    op.weight = [=, &w, &b](Backward& back) { WeightGrad(back, s, w, b); };
    op.remake = [=, &w, &b](Backward& back, const Tensor& y) {
      Forward(back.stream(), s, w, b, y, nullptr, nullptr);
    };
  }
  tape.Record(std::move(op), /*trains=*/true);
  return s.y;
}

}  // namespace delink::ops
