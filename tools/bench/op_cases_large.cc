// The list of measured kernels: matrix products, and those over all parameters.
#include <cmath>

#include "framework/optim/kernels.h"
#include "framework/optim/slab_optimizer.h"
#include "layers/kernels/find_kernels.h"
#include "layers/ops/head_loss.h"
#include "tools/bench/op_list.h"
#include "tools/bench/update_rates.h"

namespace delink::bench {
namespace {

// The three products of a linear layer with m rows of type t. The rows of its
// output begin `pitch` elements apart.
struct Linear {
  int64_t m, in, out, pitch;
  DType t, gradient;

  MatmulArgs Forward(Pieces& at, bool bias) const {
    return {.m = m,
            .n = out,
            .k = in,
            .transpose_b = true,
            .a = at.Take(m * in, t),
            .lda = in,
            .b = at.Take(out * in, t),
            .ldb = in,
            .c = at.Take(m * pitch, t),
            .ldc = pitch,
            .bias = bias ? at.Take(out, t) : nullptr};
  }
  MatmulArgs Dx(Pieces& at) const {
    return {.m = m,
            .n = in,
            .k = out,
            .a = at.Take(m * pitch, t),
            .lda = pitch,
            .b = at.Take(out * in, t),
            .ldb = in,
            .c = at.Take(m * in, t),
            .ldc = in};
  }
  MatmulArgs Dw(Pieces& at) const {
    return {.m = out,
            .n = in,
            .k = m,
            .transpose_a = true,
            .a = at.Take(m * pitch, t),
            .lda = pitch,
            .b = at.Take(m * in, t),
            .ldb = in,
            .c = at.Take(out * in, gradient),
            .ldc = in,
            .c_is_gradient = true};
  }
};

}  // namespace

void OpList::AddMatmul(const std::string& name, int64_t m, int64_t in,
                       int64_t out, bool bias, int64_t pitch) {
  const Linear of{m, in, out, pitch, dtype_, kGradient};
  const MatmulKernel library =
      device_ == DeviceKind::kCpu ? LibraryMatmul(dtype_) : nullptr;
  const auto add = [&](const char* what, const std::string& shape, auto make) {
    const std::string title = absl::StrCat("matmul ", name, " ", what);
    Add(title, shape, kernels_->matmul, make);
    if (library != nullptr) Add(title + ", library", shape, library, make);
  };
  add("forward", By(m, out, in),
      [=](Pieces& at) { return of.Forward(at, bias); });
  add("dx", By(m, in, out), [=](Pieces& at) { return of.Dx(at); });
  add("dw", By(out, in, m), [=](Pieces& at) { return of.Dw(at); });
}

void OpList::AddMatmuls() {
  AddMatmul("qkv", sizes_.N, sizes_.D, (sizes_.H + 2 * sizes_.Hkv) * sizes_.Dh,
            true, (sizes_.H + 2 * sizes_.Hkv) * sizes_.Dh);
  AddMatmul("out", sizes_.N, sizes_.H * sizes_.Dh, sizes_.D, true, sizes_.D);
  AddMatmul("up", sizes_.N, sizes_.D, sizes_.F, true, sizes_.F);
  AddMatmul("down", sizes_.N, sizes_.F, sizes_.D, true, sizes_.D);
  AddFusedMatmuls();
  AddMatmul("head", ops::HeadLossChunk(sizes_.N, sizes_.V, dtype_, device_),
            sizes_.D, sizes_.V, false, ops::HeadLossPitch(sizes_.V, dtype_));
}

// Fused products of an MLP with GELU.
void OpList::AddFusedMatmuls() {
  const int64_t N = sizes_.N, D = sizes_.D, F = sizes_.F;
  const DType t = dtype_, p = kGradient;
  const Linear up{N, D, F, F, t, p}, down{N, F, D, D, t, p};
  Add("matmul up gelu", By(N, F, D), kernels_->matmul_gelu, [=](Pieces& at) {
    return MatmulGeluArgs{up.Forward(at, true), GeluForm::kTanh,
                          at.Take(N * F, t)};
  });
  Add("matmul down dx gelu", By(N, F, D), kernels_->matmul_gelu_backward,
      [=](Pieces& at) {
        return MatmulGeluBackwardArgs{down.Dx(at), GeluForm::kTanh,
                                      at.Take(N * F, t)};
      });
  Add("matmul up dw bias", By(F, D, N), kernels_->matmul_bias_grad,
      [=](Pieces& at) {
        return MatmulBiasGradArgs{up.Dw(at), at.Take(F, p)};
      });
}

void OpList::AddAttention(int64_t B, int64_t seq) {
  const int64_t H = sizes_.H, Hkv = sizes_.Hkv, Dh = sizes_.Dh;
  const int64_t row = (H + 2 * Hkv) * Dh;
  const DType t = dtype_, stat = StatisticsOf(t);
  const Kernels& kernels = *kernels_;
  const auto offset = [=](void* qkv, int64_t elements) -> void* {
    return qkv == nullptr ? nullptr
                          : static_cast<char*>(qkv) + elements * SizeOf(t);
  };
  const HeadStrides packed{seq * row, row}, out{seq * H * Dh, H * Dh};
  const double scale = 1 / std::sqrt(static_cast<double>(Dh));
  const std::string shape = By(B, H, seq, Dh);
  Add("attention forward", shape, kernels_->attention_forward, [=](Pieces& m) {
    void* const qkv = m.Take(B * seq * row, t);
    AttentionForwardArgs a{.B = B,
                           .H = H,
                           .Hkv = Hkv,
                           .Dh = Dh,
                           .Tq = seq,
                           .Tk = seq,
                           .scale = scale,
                           .q = qkv,
                           .q_strides = packed,
                           .k = offset(qkv, H * Dh),
                           .v = offset(qkv, (H + Hkv) * Dh),
                           .kv_strides = packed,
                           .o = m.Take(B * seq * H * Dh, t),
                           .o_strides = out,
                           .lse = m.Take(B * H * seq, stat)};
    a.scratch_bytes = kernels.attention_forward_scratch_bytes(a, 0);
    a.scratch = m.Take(a.scratch_bytes, DType::kU8);
    return a;
  });
  Add("attention backward", shape, kernels_->attention_backward,
      [=](Pieces& m) {
        void* const qkv = m.Take(B * seq * row, t);
        void* const d_qkv = m.Take(B * seq * row, t);
        AttentionBackwardArgs a{.B = B,
                                .H = H,
                                .Hkv = Hkv,
                                .Dh = Dh,
                                .Tq = seq,
                                .Tk = seq,
                                .scale = scale,
                                .q = qkv,
                                .q_strides = packed,
                                .k = offset(qkv, H * Dh),
                                .v = offset(qkv, (H + Hkv) * Dh),
                                .kv_strides = packed,
                                .o = m.Take(B * seq * H * Dh, t),
                                .d_o = m.Take(B * seq * H * Dh, t),
                                .o_strides = out,
                                .lse = m.Take(B * H * seq, stat),
                                .dq = d_qkv,
                                .dk = offset(d_qkv, H * Dh),
                                .dv = offset(d_qkv, (H + Hkv) * Dh),
                                .delta = m.Take(B * H * seq, stat)};
        a.scratch_bytes = kernels.attention_backward_scratch_bytes(a, 0);
        a.scratch = m.Take(a.scratch_bytes, DType::kU8);
        return a;
      });
}

namespace {

// AdamW over n parameters; for bf16 with master weights, which it also rounds.
OpCall AdamW(const OptimKernels& kernels, int64_t n, DType dtype, Pieces& m) {
  const AdamWArgs a =
      AdamWOf({.weights = dtype, .gradients = DType::kF32}, n, m);
  const double plane = static_cast<double>(n) * sizeof(float);
  return {
      .work = {.kernel = "adamw",
               .dtype = dtype,
               .read = 4 * plane,
               .written = 3 * plane + (dtype == DType::kBF16 ? plane / 2 : 0)},
      .run = [a, &kernels](Stream& stream) { kernels.adamw(stream, a); }};
}

OpCall SumSquares(const OptimKernels& kernels, int64_t n, Pieces& m) {
  constexpr int64_t kBlock = 1 << 16;
  const SumSquaresArgs a{.x = m.Take(n, DType::kF32),
                         .n = n,
                         .block = kBlock,
                         .sums = static_cast<double*>(
                             m.Take((n + kBlock - 1) / kBlock, DType::kF64))};
  return {
      .work = {.kernel = "sum_squares",
               .read = static_cast<double>(n) * sizeof(float)},
      .run = [a, &kernels](Stream& stream) { kernels.sum_squares(stream, a); }};
}

}  // namespace

// The loss on one of two ranks that share a vocabulary.
void OpList::AddLossOfColumns() {
  const DType t = dtype_;
  const int64_t V = (sizes_.V + 1) / 2,
                rows = ops::HeadLossChunk(sizes_.N, V, dtype_, device_),
                pitch = ops::HeadLossPitch(V, dtype_);
  const std::vector<int32_t> targets(static_cast<size_t>(rows), 3);
  const std::vector<double> zeros(static_cast<size_t>(rows)),
      ones(static_cast<size_t>(2 * rows), 1.0);
  Add("vocab_max", By(rows, V), kernels_->vocab_max, [=](Pieces& m) {
    return VocabMaxArgs{.N = rows,
                        .V = V,
                        .ld = pitch,
                        .logits = m.Take(rows * pitch, t),
                        .max = static_cast<double*>(m.Take(rows, DType::kF64))};
  });
  Add("vocab_sums", By(rows, V), kernels_->vocab_sums, [=](Pieces& m) {
    return VocabSumsArgs{
        .N = rows,
        .V = V,
        .ld = pitch,
        .logits = m.Take(rows * pitch, t),
        .first_token = 0,
        .targets = m.Put(targets),
        .ignore_index = -1,
        .max = m.Put(zeros),
        .sums = static_cast<double*>(m.Take(2 * rows, DType::kF64))};
  });
  Add("vocab_cross_entropy with gradient", By(rows, V),
      kernels_->vocab_cross_entropy, [=](Pieces& m) {
        return VocabCrossEntropyArgs{
            .N = rows,
            .V = V,
            .ld = pitch,
            .logits = m.Take(rows * pitch, t),
            .first_token = 0,
            .targets = m.Put(targets),
            .ignore_index = -1,
            .want_grad = true,
            .counts = true,
            .max = m.Put(zeros),
            .sums = m.Put(ones),
            .row_loss = static_cast<double*>(m.Take(rows, DType::kF64)),
            .loss_sum = static_cast<double*>(m.Take(1, DType::kF64)),
            .count = static_cast<int64_t*>(m.Take(1, DType::kI64))};
      });
}

void OpList::AddLossAndOptimizer() {
  const DType t = dtype_;
  const int64_t V = sizes_.V,
                rows = ops::HeadLossChunk(sizes_.N, V, dtype_, device_),
                pitch = ops::HeadLossPitch(V, dtype_);
  const std::vector<int32_t> targets(static_cast<size_t>(rows), 3);
  for (const bool want_grad : {false, true}) {
    Add(want_grad ? "cross_entropy with gradient" : "cross_entropy",
        By(rows, V), kernels_->cross_entropy, [=](Pieces& m) {
          return CrossEntropyArgs{
              .N = rows,
              .V = V,
              .ld = pitch,
              .logits = m.Take(rows * pitch, t),
              .targets = m.Put(targets),
              .ignore_index = -1,
              .want_grad = want_grad,
              .row_loss = static_cast<double*>(m.Take(rows, DType::kF64)),
              .loss_sum = static_cast<double*>(m.Take(1, DType::kF64)),
              .count = static_cast<int64_t*>(m.Take(1, DType::kI64))};
        });
  }
  const int64_t n = sizes_.block_parameters;
  const OptimKernels& kernels = *optim_;
  cases_.push_back(
      {.name = "adamw",
       .shape = By(n),
       .dtype = t,
       .make = [=, &kernels](Pieces& m) { return AdamW(kernels, n, t, m); }});
  // Gradients are f32 for all types of weights.
  if (t != DType::kF32) return;
  cases_.push_back(
      {.name = "sum_squares",
       .shape = By(n),
       .dtype = t,
       .make = [=, &kernels](Pieces& m) { return SumSquares(kernels, n, m); }});
}

}  // namespace delink::bench
