// Speed of the CPU kernels at the shapes of GPT-2 small and of a 10 M model.
// Counters: GFLOP/s where arithmetic bounds, bytes/s where memory does.
//
//   OMP_NUM_THREADS=2 kernels_bench --benchmark_filter=attention
//   kernels_bench --benchmark_format=json
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "framework/device/backend.h"
#include "layers/kernels/find_kernels.h"

namespace delink {
namespace {

// A device's memory for floats, none of them 0 or denormal.
class Floats {
 public:
  explicit Floats(int64_t count) : values_(count) {
    for (int64_t i = 0; i < count; ++i) {
      values_[i] = static_cast<float>(i * 7919 % 1009 - 504) * 2e-3F + 1e-4F;
    }
  }
  float* data() { return values_.data(); }

 private:
  std::vector<float> values_;
};

struct Bench {
  std::unique_ptr<Device> device = NewCpuDevice();
  std::unique_ptr<Stream> stream = device->NewStream();
  const Kernels& kernels = *FindKernels(DeviceKind::kCpu, DType::kF32);
};

void CountFlops(benchmark::State& state, double flops) {
  state.counters["FLOP/s"] =
      benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}

void CountBytes(benchmark::State& state, int64_t floats) {
  state.SetBytesProcessed(state.iterations() * floats *
                          static_cast<int64_t>(sizeof(float)));
}

// m, n, k, transpose_a, transpose_b, accumulate.
void Matmul(benchmark::State& state) {
  Bench bench;
  const int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  const bool transpose_a = state.range(3) != 0;
  const bool transpose_b = state.range(4) != 0;
  Floats a(m * k), b(k * n), c(m * n);
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
                                         .accumulate = state.range(5) != 0});
  }
  CountFlops(state, 2.0 * m * n * k);
}
BENCHMARK(Matmul)
    ->Name("matmul")
    ->Args({1024, 2304, 768, 0, 1, 0})
    ->Args({1024, 3072, 768, 0, 1, 0})
    ->Args({1024, 768, 3072, 0, 0, 0})
    ->Args({3072, 768, 1024, 1, 0, 1})
    ->Args({1024, 768, 256, 0, 1, 0})
    ->Args({1024, 256, 1024, 0, 0, 0})
    ->Args({1024, 256, 1024, 1, 0, 1})
    ->Args({256, 50304, 768, 0, 1, 0})
    ->Args({1, 768, 768, 0, 1, 0})
    ->UseRealTime();

// B, H, T, Dh, W; causal, within the window if there is one.
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
  Floats qkv, d_qkv, o, d_o, lse, delta;
};

void AttentionForward(benchmark::State& state) {
  Bench bench;
  AttentionData data(state);
  AttentionForwardArgs args = data.Forward();
  args.scratch_bytes = bench.kernels.attention_forward_scratch_bytes(args, 0);
  Floats scratch(args.scratch_bytes / 4 + 16);
  args.scratch = scratch.data();
  for (auto _ : state) bench.kernels.attention_forward(*bench.stream, args);
  CountFlops(state, 2 * data.Flops());
}
BENCHMARK(AttentionForward)
    ->Name("attention_forward")
    ->Args({4, 12, 256, 64, 0})
    ->Args({8, 8, 256, 32, 0})
    ->Args({1, 12, 1024, 64, 0})
    ->Args({1, 12, 1024, 64, 128})
    ->UseRealTime();

void AttentionBackward(benchmark::State& state) {
  Bench bench;
  AttentionData data(state);
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
  Floats scratch(args.scratch_bytes / 4 + 16);
  args.scratch = scratch.data();
  for (auto _ : state) bench.kernels.attention_backward(*bench.stream, args);
  CountFlops(state, 5 * data.Flops());
}
BENCHMARK(AttentionBackward)
    ->Name("attention_backward")
    ->Args({4, 12, 256, 64, 0})
    ->Args({8, 8, 256, 32, 0})
    ->Args({1, 12, 1024, 64, 0})
    ->Args({1, 12, 1024, 64, 128})
    ->UseRealTime();

// N, D; forward, then both halves of backward.
void LayerNorm(benchmark::State& state) {
  Bench bench;
  const int64_t N = state.range(0), D = state.range(1);
  Floats x(N * D), dy(N * D), y(N * D), w(D), dw(D), db(D), mean(N), rstd(N);
  for (auto _ : state) {
    bench.kernels.layer_norm_forward(
        *bench.stream, {N, D, 1e-5, x.data(), w.data(), w.data(), y.data(),
                        mean.data(), rstd.data()});
    bench.kernels.layer_norm_backward_input(
        *bench.stream, {N, D, dy.data(), x.data(), w.data(), mean.data(),
                        rstd.data(), y.data()});
    bench.kernels.layer_norm_backward_weight(
        *bench.stream, {N, D, dy.data(), x.data(), mean.data(), rstd.data(),
                        dw.data(), db.data(), true});
  }
  CountBytes(state, 7 * N * D);
}
BENCHMARK(LayerNorm)->Name("layer_norm")->Args({1024, 768})->UseRealTime();

void BiasGrad(benchmark::State& state) {
  Bench bench;
  const int64_t N = state.range(0), D = state.range(1);
  Floats dy(N * D), db(D);
  for (auto _ : state) {
    bench.kernels.bias_grad(*bench.stream, {N, D, dy.data(), db.data(), true});
  }
  CountBytes(state, N * D);
}
BENCHMARK(BiasGrad)->Name("bias_grad")->Args({1024, 3072})->UseRealTime();

void Gelu(benchmark::State& state) {
  Bench bench;
  const int64_t count = state.range(0);
  const auto form = static_cast<GeluForm>(state.range(1));
  Floats x(count), y(count), dx(count);
  for (auto _ : state) {
    bench.kernels.gelu_forward(*bench.stream,
                               {count, form, x.data(), y.data()});
    bench.kernels.gelu_backward(*bench.stream,
                                {count, form, y.data(), x.data(), dx.data()});
  }
  CountBytes(state, 5 * count);
}
BENCHMARK(Gelu)
    ->Name("gelu")
    ->Args({1024 * 3072, 0})
    ->Args({1024 * 3072, 1})
    ->UseRealTime();

// N, F; forward, then backward.
void SwiGlu(benchmark::State& state) {
  Bench bench;
  const int64_t N = state.range(0), F = state.range(1);
  Floats x(2 * N * F), y(N * F), dx(2 * N * F);
  for (auto _ : state) {
    bench.kernels.swiglu_forward(*bench.stream, {N, F, x.data(), y.data()});
    bench.kernels.swiglu_backward(*bench.stream,
                                  {N, F, y.data(), x.data(), dx.data()});
  }
  CountBytes(state, 8 * N * F);
}
BENCHMARK(SwiGlu)->Name("swiglu")->Args({1024, 2048})->UseRealTime();

// B, T, heads (of queries and keys), Dh, pairing.
void Rotary(benchmark::State& state) {
  Bench bench;
  const int64_t B = state.range(0), T = state.range(1);
  const int64_t heads = state.range(2), Dh = state.range(3);
  const int64_t row = heads / 2 * 3 * Dh;
  Floats x(B * T * row);
  RotaryAngles angles = {.pairing = static_cast<RotaryPairing>(state.range(4)),
                         .pairs = static_cast<int>(Dh / 2)};
  for (int i = 0; i < angles.pairs; ++i) {
    angles.inverse_frequency[i] = std::pow(1e4, -2.0 * i / Dh);
  }
  for (auto _ : state) {
    bench.kernels.rotary(*bench.stream, {.B = B,
                                         .T = T,
                                         .Dh = Dh,
                                         .heads = heads,
                                         .row = row,
                                         .angles = &angles,
                                         .x = x.data()});
  }
  CountBytes(state, 2 * B * T * heads * Dh);
}
BENCHMARK(Rotary)
    ->Name("rotary")
    ->Args({4, 256, 24, 64, 0})
    ->Args({4, 256, 24, 64, 1})
    ->Args({1, 256, 24, 64, 0})
    ->UseRealTime();

// N, H, Hkv, Dh; forward, then both halves of backward.
void QkNorm(benchmark::State& state) {
  Bench bench;
  const int64_t N = state.range(0), H = state.range(1), Hkv = state.range(2);
  const int64_t Dh = state.range(3), width = (H + 2 * Hkv) * Dh;
  Floats x(N * width), dy(N * width), y(N * width), w(Dh), dw(Dh);
  Floats rstd(N * (H + Hkv));
  for (auto _ : state) {
    bench.kernels.qk_norm_forward(
        *bench.stream, {N, H, Hkv, Dh, 1e-6, x.data(), w.data(), w.data(),
                        y.data(), rstd.data()});
    bench.kernels.qk_norm_backward_input(
        *bench.stream, {N, H, Hkv, Dh, dy.data(), x.data(), w.data(), w.data(),
                        rstd.data(), y.data()});
    QkNormBackwardWeightArgs args = {
        N,         Dh,       H + 2 * Hkv, H + Hkv,   0,   H,
        dy.data(), x.data(), rstd.data(), dw.data(), true};
    bench.kernels.qk_norm_backward_weight(*bench.stream, args);
    args.first_head = H;
    args.heads = Hkv;
    bench.kernels.qk_norm_backward_weight(*bench.stream, args);
  }
  CountBytes(state, 7 * N * width);
}
BENCHMARK(QkNorm)->Name("qk_norm")->Args({1024, 12, 4, 64})->UseRealTime();

void Add(benchmark::State& state) {
  Bench bench;
  const int64_t count = state.range(0);
  Floats a(count), b(count), y(count);
  for (auto _ : state) {
    bench.kernels.add(*bench.stream, {count, a.data(), b.data(), y.data()});
  }
  CountBytes(state, 3 * count);
}
BENCHMARK(Add)->Name("add")->Arg(1024 * 768)->Arg(1 << 25)->UseRealTime();

void Dropout(benchmark::State& state) {
  Bench bench;
  const int64_t B = 4, T = 256, D = state.range(0);
  const RngKey key = KeyFromSeed(1);
  const std::vector<int64_t> sample = {0, 1, 2, 3};
  Floats x(B * T * D), y(B * T * D);
  for (auto _ : state) {
    bench.kernels.dropout(*bench.stream, {.B = B,
                                          .T = T,
                                          .D = D,
                                          .rate = 0.1,
                                          .step_key = &key,
                                          .name_hash = 1,
                                          .sample = sample.data(),
                                          .x = x.data(),
                                          .y = y.data()});
  }
  CountBytes(state, 2 * B * T * D);
}
BENCHMARK(Dropout)->Name("dropout")->Arg(768)->UseRealTime();

// Sums only: the gradient would change the logits from run to run.
void CrossEntropy(benchmark::State& state) {
  Bench bench;
  const int64_t N = state.range(0), V = state.range(1);
  const bool want_grad = state.range(2) != 0;
  Floats logits(N * V);
  std::vector<int32_t> targets(N, 3);
  std::vector<double> row_loss(N);
  double loss = 0.0;
  int64_t count = 0;
  for (auto _ : state) {
    bench.kernels.cross_entropy(
        *bench.stream, {N, V, V, logits.data(), targets.data(), -100, want_grad,
                        row_loss.data(), &loss, &count});
  }
  CountBytes(state, (want_grad ? 2 : 1) * N * V);
}
BENCHMARK(CrossEntropy)
    ->Name("cross_entropy")
    ->Args({256, 50304, 0})
    ->Args({256, 50304, 1})
    ->UseRealTime();

void EmbeddingBackward(benchmark::State& state) {
  Bench bench;
  const int64_t N = 1024, D = 768, V = 50304;
  std::vector<int32_t> tokens(N);
  for (int64_t n = 0; n < N; ++n) {
    tokens[n] = static_cast<int32_t>(n * 7919 % V);
  }
  Floats dy(N * D), dw(V * D);
  for (auto _ : state) {
    bench.kernels.embedding_backward_weight(
        *bench.stream, {N, D, V, tokens.data(), dy.data(), dw.data(), true});
  }
  CountBytes(state, 3 * N * D);
}
BENCHMARK(EmbeddingBackward)->Name("embedding_backward")->UseRealTime();

}  // namespace
}  // namespace delink

BENCHMARK_MAIN();
