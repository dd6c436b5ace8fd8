#include "layers/ops/qk_norm.h"

#include <utility>

#include "layers/ops/kernels_of.h"
#include "layers/ops/small_gradient.h"

namespace delink::ops {
namespace {

struct SavedQkNorm {
  int64_t N, H, Hkv, Dh;
  Var x, y, rstd;
};

void InputGrad(Backward& back, const SavedQkNorm& s, const Param& q_w,
               const Param& k_w) {
  if (!s.x.needs_grad()) return;
  const Tensor dy = back.grad(s.y);
  KernelsOf(s.x.tape(), s.x.dtype())
      .qk_norm_backward_input(back.stream(), {.N = s.N,
                                              .H = s.H,
                                              .Hkv = s.Hkv,
                                              .Dh = s.Dh,
                                              .dy = dy.data(),
                                              .x = s.x.data(),
                                              .q_w = q_w.weight().data(),
                                              .k_w = k_w.weight().data(),
                                              .rstd = s.rstd.data(),
                                              .dx = back.NewGrad(s.x).data()});
}

void WeightGrad(Backward& back, const SavedQkNorm& s, Param& w,
                int64_t first_head, int64_t heads) {
  const Kernels& kernels = KernelsOf(s.x.tape(), s.x.dtype());
  const SmallGradient dw(back, w);
  kernels.qk_norm_backward_weight(back.stream(),
                                  {.N = s.N,
                                   .Dh = s.Dh,
                                   .row_heads = s.H + 2 * s.Hkv,
                                   .rstd_heads = s.H + s.Hkv,
                                   .first_head = first_head,
                                   .heads = heads,
                                   .dy = back.grad(s.y).data(),
                                   .x = s.x.data(),
                                   .rstd = s.rstd.data(),
                                   .dw = dw.data(),
                                   .accumulate = dw.accumulate()});
  dw.Store();
}

}  // namespace

Var QkNorm(Var qkv, const QkNormConfig& c, Param& q_w, Param& k_w) {
  DELINK_CHECK(c.heads > 0 && c.kv_heads > 0);
  const int64_t row_heads = c.heads + 2 * c.kv_heads;
  DELINK_CHECK_EQ(qkv.dim(-1) % row_heads, 0) << "qkv " << qkv.shape();
  SavedQkNorm s{.N = RowsOf(qkv.shape()),
                .H = c.heads,
                .Hkv = c.kv_heads,
                .Dh = qkv.dim(-1) / row_heads,
                .x = qkv};
  DELINK_CHECK_EQ(q_w.shape(), (Shape{s.Dh}));
  DELINK_CHECK_EQ(k_w.shape(), (Shape{s.Dh}));
  Tape& tape = qkv.tape();
  s.y = tape.Output(qkv.shape(), qkv.dtype());
  const bool recording = tape.recording();
  if (recording) {
    s.rstd = tape.Output({s.N, s.H + s.Hkv}, StatisticsOf(qkv.dtype()));
  }
  KernelsOf(tape, qkv.dtype())
      .qk_norm_forward(tape.stream(),
                       {.N = s.N,
                        .H = s.H,
                        .Hkv = s.Hkv,
                        .Dh = s.Dh,
                        .eps = c.eps,
                        .x = qkv.data(),
                        .q_w = q_w.weight().data(),
                        .k_w = k_w.weight().data(),
                        .y = s.y.data(),
                        .rstd = recording ? s.rstd.data() : nullptr});
  OpRecord op{.name = "qk_norm",
              .inputs = {qkv},
              .outputs = {s.y},
              .by_token = true,
              .own_rows = true};
  if (recording) {
    op.saves = {qkv, s.rstd};
    op.input = [=, &q_w, &k_w](Backward& back) {
      InputGrad(back, s, q_w, k_w);
    };
    op.weight = [=, &q_w, &k_w](Backward& back) {
      WeightGrad(back, s, q_w, 0, s.H);
      WeightGrad(back, s, k_w, s.H, s.Hkv);
    };
  }
  tape.Record(std::move(op), /*trains=*/true);
  return s.y;
}

}  // namespace delink::ops
