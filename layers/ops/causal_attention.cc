#include "layers/ops/causal_attention.h"

#include <utility>

#include "layers/ops/attention_heads.h"
#include "layers/ops/kernels_of.h"

namespace delink::ops {
namespace {

AttentionForwardArgs ForwardArgs(const Heads& s, const Tensor& qkv,
                                 const Tensor& o) {
  return {.B = s.B,
          .H = s.H,
          .Hkv = s.Hkv,
          .Dh = s.Dh,
          .Tq = s.T,
          .Tk = s.T,
          .scale = s.scale(),
          .window = s.window,
          .positions = s.positions,
          .q = qkv.data(),
          .q_strides = s.packed(),
          .k = Offset(qkv, s.H * s.Dh),
          .v = Offset(qkv, (s.H + s.Hkv) * s.Dh),
          .kv_strides = s.packed(),
          .o = o.data(),
          .o_strides = s.output()};
}

void Forward(Tape& tape, const Kernels& kernels, AttentionForwardArgs args) {
  args.scratch_bytes =
      kernels.attention_forward_scratch_bytes(args, kAllThreads);
  if (args.scratch_bytes > 0) {
    args.scratch = tape.Scratch({args.scratch_bytes}, DType::kU8).data();
  }
  kernels.attention_forward(tape.stream(), args);
}

void InputGrad(Backward& back, const Heads& s, Var qkv, Var o, Var lse) {
  if (!qkv.needs_grad()) return;
  const Tensor dqkv = back.NewGrad(qkv);
  const Kernels& kernels = KernelsOf(qkv.tape(), qkv.dtype());
  AttentionBackwardArgs args{
      .B = s.B,
      .H = s.H,
      .Hkv = s.Hkv,
      .Dh = s.Dh,
      .Tq = s.T,
      .Tk = s.T,
      .scale = s.scale(),
      .window = s.window,
      .positions = s.positions,
      .q = qkv.data(),
      .q_strides = s.packed(),
      .k = Offset(qkv.value(), s.H * s.Dh),
      .v = Offset(qkv.value(), (s.H + s.Hkv) * s.Dh),
      .kv_strides = s.packed(),
      .o = o.data(),
      .d_o = back.grad(o).data(),
      .o_strides = s.output(),
      .lse = lse.data(),
      .dq = dqkv.data(),
      .dk = Offset(dqkv, s.H * s.Dh),
      .dv = Offset(dqkv, (s.H + s.Hkv) * s.Dh),
      .delta = back.Scratch({s.B, s.H, s.T}, lse.dtype()).data(),
      .deterministic = qkv.tape().inputs().deterministic};
  args.scratch_bytes =
      kernels.attention_backward_scratch_bytes(args, kAllThreads);
  if (args.scratch_bytes > 0) {
    args.scratch = back.Scratch({args.scratch_bytes}, DType::kU8).data();
  }
  kernels.attention_backward(back.stream(), args);
}

}  // namespace

Var CausalAttention(Var qkv, int64_t heads, int64_t kv_heads, int64_t window) {
  const Heads s = HeadsOf(qkv, heads, kv_heads, window);
  Tape& tape = qkv.tape();
  if (tape.groups().context != nullptr) return ContextAttention(qkv, s);
  const DType dtype = qkv.dtype();
  const Var o = tape.Output({s.B, s.T, s.H * s.Dh}, dtype);
  Var lse;
  AttentionForwardArgs args = ForwardArgs(s, qkv.value(), o.value());
  if (tape.recording()) {
    lse = tape.Output({s.B, s.H, s.T}, StatisticsOf(dtype));
    args.lse = lse.data();
  }
  Forward(tape, KernelsOf(tape, dtype), args);
  // Scores and weighted sums, for each query and each key that it sees. The
  // ends of documents are unknown here, so a row counts as one document.
  const double pairs = static_cast<double>(s.pairs(0, s.T));
  const double flops = 4.0 * pairs * static_cast<double>(s.B * s.H * s.Dh);
  OpRecord op{.name = "attention",
              .inputs = {qkv},
              .outputs = {o},
              .flops = flops,
              .backward_flops = 2 * flops};
  if (tape.recording()) {
    op.saves = {qkv, o, lse};
    op.input = [=](Backward& back) { InputGrad(back, s, qkv, o, lse); };
  }
  tape.Record(std::move(op));
  return o;
}

Var CachedAttention(Var qkv, int64_t heads, int64_t kv_heads,
                    const Tensor& cache, int64_t keys, int64_t window) {
  const Heads s = HeadsOf(qkv, heads, kv_heads, window);
  Tape& tape = qkv.tape();
  DELINK_CHECK(!tape.recording() && s.positions == nullptr)
      << "a cache is for generation, of one document";
  DELINK_CHECK(cache.dtype() == qkv.dtype());
  const int64_t capacity = cache.dim(1), row = 2 * s.Hkv * s.Dh;
  DELINK_CHECK_EQ(cache.shape(), (Shape{s.B, capacity, row}));
  DELINK_CHECK(s.T <= keys && keys <= capacity) << keys << " keys";
  const Var o = tape.Output({s.B, s.T, s.H * s.Dh}, qkv.dtype());
  AttentionForwardArgs args = ForwardArgs(s, qkv.value(), o.value());
  args.Tk = keys;
  args.k = cache.data();
  args.v = Offset(cache, s.Hkv * s.Dh);
  args.kv_strides = {capacity * row, row};
  Forward(tape, KernelsOf(tape, qkv.dtype()), args);
  tape.Record({.name = "cached_attention",
               .inputs = {qkv},
               .outputs = {o},
               .by_token = true});
  return o;
}

}  // namespace delink::ops
