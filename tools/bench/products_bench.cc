// Speed of matrix products and attention at the shapes of GPT-2 small and of a
// 10 M model. Counter: FLOP/s.
#include <cmath>

#include "tools/bench/kernels_bench.h"

namespace delink {
namespace {

// m, n, k, transpose_a, transpose_b, whether C is a gradient to add to.
template <typename T>
void Matmul(benchmark::State& state) {
  Bench<T> bench;
  const int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  const bool transpose_a = state.range(3) != 0;
  const bool transpose_b = state.range(4) != 0;
  const bool gradient = state.range(5) != 0;
  Numbers<T> a(m * k), b(k * n);
  Numbers<float> c(m * n);  // large enough for either type
  for (auto _ : state) {
    bench.kernels.matmul(*bench.stream, {.m = m,
                                         .n = n,
                                         .k = k,
                                         .transpose_a = transpose_a,
                                         .transpose_b = transpose_b,
                                         .a = a.data(),
                                         .lda = transpose_a ? m : k,
                                         .b = b.data(),
                                         .ldb = transpose_b ? k : n,
                                         .c = c.data(),
                                         .ldc = n,
                                         .accumulate = gradient,
                                         .c_is_gradient = gradient});
  }
  CountFlops(state, 2.0 * m * n * k);
}
void MatmulShapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Args({1024, 2304, 768, 0, 1, 0})
      ->Args({1024, 3072, 768, 0, 1, 0})
      ->Args({1024, 768, 3072, 0, 0, 0})
      ->Args({3072, 768, 1024, 1, 0, 1})
      ->Args({1024, 768, 256, 0, 1, 0})
      ->Args({1024, 256, 1024, 0, 0, 0})
      ->Args({1024, 256, 1024, 1, 0, 1})
      ->Args({256, 50304, 768, 0, 1, 0})
      ->Args({1, 768, 768, 0, 1, 0})
      ->UseRealTime();
}
BENCHMARK_TEMPLATE(Matmul, float)->Name("matmul")->Apply(MatmulShapes);
BENCHMARK_TEMPLATE(Matmul, BFloat16)->Name("matmul_bf16")->Apply(MatmulShapes);

// B, H, T, Dh, W; causal, within the window if there is one.
template <typename Number>
struct AttentionData {
  explicit AttentionData(const benchmark::State& state)
      : B(state.range(0)),
        H(state.range(1)),
        T(state.range(2)),
        Dh(state.range(3)),
        W(state.range(4)),
        qkv(3 * B * T * H * Dh),
        d_qkv(3 * B * T * H * Dh),
        o(B * T * H * Dh),
        d_o(B * T * H * Dh),
        lse(B * H * T),
        delta(B * H * T) {}

  AttentionForwardArgs Forward() {
    const HeadStrides strides = {T * 3 * H * Dh, 3 * H * Dh};
    return {.B = B,
            .H = H,
            .Hkv = H,
            .Dh = Dh,
            .Tq = T,
            .Tk = T,
            .scale = 1.0 / std::sqrt(static_cast<double>(Dh)),
            .window = W,
            .q = qkv.data(),
            .q_strides = strides,
            .k = qkv.data() + H * Dh,
            .v = qkv.data() + 2 * H * Dh,
            .kv_strides = strides,
            .o = o.data(),
            .o_strides = {T * H * Dh, H * Dh},
            .lse = lse.data()};
  }

  // Multiplications and additions of one product over all that is seen.
  double Flops() const {
    const int64_t seen =
        W > 0 ? W * (W + 1) / 2 + (T - W) * W : T * (T + 1) / 2;
    return 2.0 * static_cast<double>(B * H * Dh * seen);
  }

  int64_t B, H, T, Dh, W;
  Numbers<Number> qkv, d_qkv, o, d_o;
  Numbers<float> lse, delta;
};

template <typename T>
void AttentionForward(benchmark::State& state) {
  Bench<T> bench;
  AttentionData<T> data(state);
  AttentionForwardArgs args = data.Forward();
  args.scratch_bytes = bench.kernels.attention_forward_scratch_bytes(args, 0);
  Numbers<float> scratch(args.scratch_bytes / 4 + 16);
  args.scratch = scratch.data();
  for (auto _ : state) bench.kernels.attention_forward(*bench.stream, args);
  CountFlops(state, 2 * data.Flops());
}
void AttentionForwardShapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Args({4, 12, 256, 64, 0})
      ->Args({8, 8, 256, 32, 0})
      ->Args({1, 12, 1024, 64, 0})
      ->Args({1, 12, 1024, 64, 128})
      ->UseRealTime();
}
BENCHMARK_TEMPLATE(AttentionForward, float)
    ->Name("attention_forward")
    ->Apply(AttentionForwardShapes);
BENCHMARK_TEMPLATE(AttentionForward, BFloat16)
    ->Name("attention_forward_bf16")
    ->Apply(AttentionForwardShapes);

template <typename T>
void AttentionBackward(benchmark::State& state) {
  Bench<T> bench;
  AttentionData<T> data(state);
  const AttentionForwardArgs f = data.Forward();
  AttentionBackwardArgs args = {.B = f.B,
                                .H = f.H,
                                .Hkv = f.Hkv,
                                .Dh = f.Dh,
                                .Tq = f.Tq,
                                .Tk = f.Tk,
                                .scale = f.scale,
                                .window = f.window,
                                .q = f.q,
                                .q_strides = f.q_strides,
                                .k = f.k,
                                .v = f.v,
                                .kv_strides = f.kv_strides,
                                .o = data.o.data(),
                                .d_o = data.d_o.data(),
                                .o_strides = f.o_strides,
                                .lse = data.lse.data(),
                                .dq = data.d_qkv.data(),
                                .dk = data.d_qkv.data() + data.H * data.Dh,
                                .dv = data.d_qkv.data() + 2 * data.H * data.Dh,
                                .delta = data.delta.data()};
  args.scratch_bytes = bench.kernels.attention_backward_scratch_bytes(args, 0);
  Numbers<float> scratch(args.scratch_bytes / 4 + 16);
  args.scratch = scratch.data();
  for (auto _ : state) bench.kernels.attention_backward(*bench.stream, args);
  CountFlops(state, 5 * data.Flops());
}
void AttentionBackwardShapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Args({4, 12, 256, 64, 0})
      ->Args({8, 8, 256, 32, 0})
      ->Args({1, 12, 1024, 64, 0})
      ->Args({1, 12, 1024, 64, 128})
      ->UseRealTime();
}
BENCHMARK_TEMPLATE(AttentionBackward, float)
    ->Name("attention_backward")
    ->Apply(AttentionBackwardShapes);
BENCHMARK_TEMPLATE(AttentionBackward, BFloat16)
    ->Name("attention_backward_bf16")
    ->Apply(AttentionBackwardShapes);

}  // namespace
}  // namespace delink
