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

// B, H, T, Dh; causal, so half of the products count.
struct AttentionData {
  explicit AttentionData(const benchmark::State& state)
      : B(state.range(0)),
        H(state.range(1)),
        T(state.range(2)),
        Dh(state.range(3)),
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
            .q = qkv.data(),
            .q_strides = strides,
            .k = qkv.data() + H * Dh,
            .v = qkv.data() + 2 * H * Dh,
            .kv_strides = strides,
            .o = o.data(),
            .o_strides = {T * H * Dh, H * Dh},
            .lse = lse.data()};
  }

  int64_t B, H, T, Dh;
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
  CountFlops(state, 2.0 * data.B * data.H * data.T * data.T * data.Dh);
}
BENCHMARK(AttentionForward)
    ->Name("attention_forward")
    ->Args({4, 12, 256, 64})
    ->Args({8, 8, 256, 32})
    ->Args({1, 12, 1024, 64})
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
  CountFlops(state, 5.0 * data.B * data.H * data.T * data.T * data.Dh);
}
BENCHMARK(AttentionBackward)
    ->Name("attention_backward")
    ->Args({4, 12, 256, 64})
    ->Args({8, 8, 256, 32})
    ->Args({1, 12, 1024, 64})
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
