// Speed of the CPU kernels at the shapes of GPT-2 small and of a 10 M model; in
// products_bench.cc those that arithmetic bounds. Counter: bytes/s. A name in
// _bf16 is of the table for bf16.
//
//   OMP_NUM_THREADS=2 kernels_bench --benchmark_filter=attention
//   kernels_bench --benchmark_format=json
#include "tools/bench/kernels_bench.h"

#include <cmath>

namespace delink {
namespace {

// N, D; forward, then both halves of backward.
template <typename T>
void LayerNorm(benchmark::State& state) {
  Bench<T> bench;
  const int64_t N = state.range(0), D = state.range(1);
  Numbers<T> x(N * D), dy(N * D), y(N * D), w(D);
  Numbers<float> dw(D), db(D), mean(N), rstd(N);
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
  CountBytes<T>(state, 7 * N * D);
}
void LayerNormShapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Args({1024, 768})->UseRealTime();
}
BENCHMARK_TEMPLATE(LayerNorm, float)
    ->Name("layer_norm")
    ->Apply(LayerNormShapes);
BENCHMARK_TEMPLATE(LayerNorm, BFloat16)
    ->Name("layer_norm_bf16")
    ->Apply(LayerNormShapes);

template <typename T>
void BiasGrad(benchmark::State& state) {
  Bench<T> bench;
  const int64_t N = state.range(0), D = state.range(1);
  Numbers<T> dy(N * D);
  Numbers<float> db(D);
  for (auto _ : state) {
    bench.kernels.bias_grad(*bench.stream, {N, D, dy.data(), db.data(), true});
  }
  CountBytes<T>(state, N * D);
}
void BiasGradShapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Args({1024, 3072})->UseRealTime();
}
BENCHMARK_TEMPLATE(BiasGrad, float)->Name("bias_grad")->Apply(BiasGradShapes);
BENCHMARK_TEMPLATE(BiasGrad, BFloat16)
    ->Name("bias_grad_bf16")
    ->Apply(BiasGradShapes);

template <typename T>
void Gelu(benchmark::State& state) {
  Bench<T> bench;
  const int64_t count = state.range(0);
  const auto form = static_cast<GeluForm>(state.range(1));
  Numbers<T> x(count), y(count), dx(count);
  for (auto _ : state) {
    bench.kernels.gelu_forward(*bench.stream,
                               {count, form, x.data(), y.data()});
    bench.kernels.gelu_backward(*bench.stream,
                                {count, form, y.data(), x.data(), dx.data()});
  }
  CountBytes<T>(state, 5 * count);
}
void GeluShapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Args({1024 * 3072, 0})->Args({1024 * 3072, 1})->UseRealTime();
}
BENCHMARK_TEMPLATE(Gelu, float)->Name("gelu")->Apply(GeluShapes);
BENCHMARK_TEMPLATE(Gelu, BFloat16)->Name("gelu_bf16")->Apply(GeluShapes);

// N, F; forward, then backward.
template <typename T>
void SwiGlu(benchmark::State& state) {
  Bench<T> bench;
  const int64_t N = state.range(0), F = state.range(1);
  Numbers<T> x(2 * N * F), y(N * F), dx(2 * N * F);
  for (auto _ : state) {
    bench.kernels.swiglu_forward(*bench.stream, {N, F, x.data(), y.data()});
    bench.kernels.swiglu_backward(*bench.stream,
                                  {N, F, y.data(), x.data(), dx.data()});
  }
  CountBytes<T>(state, 8 * N * F);
}
void SwiGluShapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Args({1024, 2048})->UseRealTime();
}
BENCHMARK_TEMPLATE(SwiGlu, float)->Name("swiglu")->Apply(SwiGluShapes);
BENCHMARK_TEMPLATE(SwiGlu, BFloat16)->Name("swiglu_bf16")->Apply(SwiGluShapes);

// B, T, heads (of queries and keys), Dh, pairing.
template <typename T>
void Rotary(benchmark::State& state) {
  Bench<T> bench;
  const int64_t B = state.range(0), positions = state.range(1);
  const int64_t heads = state.range(2), Dh = state.range(3);
  const int64_t row = heads / 2 * 3 * Dh;
  Numbers<T> x(B * positions * row);
  RotaryAngles angles = {.pairing = static_cast<RotaryPairing>(state.range(4)),
                         .pairs = static_cast<int>(Dh / 2)};
  for (int i = 0; i < angles.pairs; ++i) {
    angles.inverse_frequency[i] = std::pow(1e4, -2.0 * i / Dh);
  }
  for (auto _ : state) {
    bench.kernels.rotary(*bench.stream, {.B = B,
                                         .T = positions,
                                         .Dh = Dh,
                                         .heads = heads,
                                         .row = row,
                                         .angles = &angles,
                                         .x = x.data()});
  }
  CountBytes<T>(state, 2 * B * positions * heads * Dh);
}
void RotaryShapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Args({4, 256, 24, 64, 0})
      ->Args({4, 256, 24, 64, 1})
      ->Args({1, 256, 24, 64, 0})
      ->UseRealTime();
}
BENCHMARK_TEMPLATE(Rotary, float)->Name("rotary")->Apply(RotaryShapes);
BENCHMARK_TEMPLATE(Rotary, BFloat16)->Name("rotary_bf16")->Apply(RotaryShapes);

// N, H, Hkv, Dh; forward, then both halves of backward.
template <typename T>
void QkNorm(benchmark::State& state) {
  Bench<T> bench;
  const int64_t N = state.range(0), H = state.range(1), Hkv = state.range(2);
  const int64_t Dh = state.range(3), width = (H + 2 * Hkv) * Dh;
  Numbers<T> x(N * width), dy(N * width), y(N * width), w(Dh);
  Numbers<float> dw(Dh), rstd(N * (H + Hkv));
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
  CountBytes<T>(state, 7 * N * width);
}
void QkNormShapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Args({1024, 12, 4, 64})->UseRealTime();
}
BENCHMARK_TEMPLATE(QkNorm, float)->Name("qk_norm")->Apply(QkNormShapes);
BENCHMARK_TEMPLATE(QkNorm, BFloat16)->Name("qk_norm_bf16")->Apply(QkNormShapes);

template <typename T>
void Add(benchmark::State& state) {
  Bench<T> bench;
  const int64_t count = state.range(0);
  Numbers<T> a(count), b(count), y(count);
  for (auto _ : state) {
    bench.kernels.add(*bench.stream, {count, a.data(), b.data(), y.data()});
  }
  CountBytes<T>(state, 3 * count);
}
void AddShapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(1024 * 768)->Arg(1 << 25)->UseRealTime();
}
BENCHMARK_TEMPLATE(Add, float)->Name("add")->Apply(AddShapes);
BENCHMARK_TEMPLATE(Add, BFloat16)->Name("add_bf16")->Apply(AddShapes);

template <typename T>
void Dropout(benchmark::State& state) {
  Bench<T> bench;
  const int64_t B = 4, positions = 256, D = state.range(0);
  const RngKey key = KeyFromSeed(1);
  const std::vector<int64_t> sample = {0, 1, 2, 3};
  Numbers<T> x(B * positions * D), y(B * positions * D);
  for (auto _ : state) {
    bench.kernels.dropout(*bench.stream, {.B = B,
                                          .T = positions,
                                          .D = D,
                                          .rate = 0.1,
                                          .step_key = &key,
                                          .name_hash = 1,
                                          .sample = sample.data(),
                                          .x = x.data(),
                                          .y = y.data()});
  }
  CountBytes<T>(state, 2 * B * positions * D);
}
void DropoutShapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(768)->UseRealTime();
}
BENCHMARK_TEMPLATE(Dropout, float)->Name("dropout")->Apply(DropoutShapes);
BENCHMARK_TEMPLATE(Dropout, BFloat16)
    ->Name("dropout_bf16")
    ->Apply(DropoutShapes);

// Sums only: the gradient would change the logits from run to run.
template <typename T>
void CrossEntropy(benchmark::State& state) {
  Bench<T> bench;
  const int64_t N = state.range(0), V = state.range(1);
  const bool want_grad = state.range(2) != 0;
  Numbers<T> logits(N * V);
  std::vector<int32_t> targets(N, 3);
  std::vector<double> row_loss(N);
  double loss = 0.0;
  int64_t count = 0;
  for (auto _ : state) {
    bench.kernels.cross_entropy(
        *bench.stream, {N, V, V, logits.data(), targets.data(), -100, want_grad,
                        row_loss.data(), &loss, &count});
  }
  CountBytes<T>(state, (want_grad ? 2 : 1) * N * V);
}
void CrossEntropyShapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Args({256, 50304, 0})->Args({256, 50304, 1})->UseRealTime();
}
BENCHMARK_TEMPLATE(CrossEntropy, float)
    ->Name("cross_entropy")
    ->Apply(CrossEntropyShapes);
BENCHMARK_TEMPLATE(CrossEntropy, BFloat16)
    ->Name("cross_entropy_bf16")
    ->Apply(CrossEntropyShapes);

template <typename T>
void EmbeddingBackward(benchmark::State& state) {
  Bench<T> bench;
  const int64_t N = 1024, D = 768, V = 50304;
  std::vector<int32_t> tokens(N);
  for (int64_t n = 0; n < N; ++n) {
    tokens[n] = static_cast<int32_t>(n * 7919 % V);
  }
  Numbers<T> dy(N * D);
  Numbers<float> dw(V * D);
  for (auto _ : state) {
    bench.kernels.embedding_backward_weight(
        *bench.stream, {N, D, V, tokens.data(), dy.data(), dw.data(), true});
  }
  state.SetBytesProcessed(state.iterations() * N * D *
                          static_cast<int64_t>(sizeof(T) + 2 * sizeof(float)));
}
BENCHMARK_TEMPLATE(EmbeddingBackward, float)
    ->Name("embedding_backward")
    ->UseRealTime();
BENCHMARK_TEMPLATE(EmbeddingBackward, BFloat16)
    ->Name("embedding_backward_bf16")
    ->UseRealTime();

}  // namespace
}  // namespace delink

BENCHMARK_MAIN();
