// Layer norm and RMS norm; ref/norm.cc has the formulas. Rows are independent.
// The sums over rows take columns instead: a thread owns a range of columns and
// sums blocks of rows, then blocks.
#include "layers/kernels/cpu/simd/columns.h"
#include "layers/kernels/cpu/simd/rows.h"
#include "layers/kernels/cpu/simd/simd.h"

namespace delink::cpu::DELINK_SIMD {
namespace {

const float* Floats(const void* p) { return static_cast<const float*>(p); }
float* Floats(void* p) { return static_cast<float*>(p); }

// sum of (x - shift)^2; lanes past D add nothing.
float SumSquares(const float* x, int64_t D, float shift) {
  Vec sum{};
  int64_t d = 0;
  for (; d + kWidth <= D; d += kWidth) {
    const Vec centred = Load(x + d) - shift;
    sum = Fma(centred, centred, sum);
  }
  float total = ReduceAdd(sum);
  for (; d < D; ++d) total += (x[d] - shift) * (x[d] - shift);
  return total;
}

float Sum(const float* x, int64_t D) {
  Vec sum{};
  ForRow(D, [&](auto load, auto) DELINK_LAMBDA { sum += load(x); });
  return ReduceAdd(sum);
}

// One over the root of sum / D + eps; the same for a row wherever it is.
float Rstd(float sum, int64_t D, double eps) {
  const double mean = static_cast<double>(sum) / static_cast<double>(D);
  return static_cast<float>(1.0 / __builtin_sqrt(mean + eps));
}

void LayerNormRow(const LayerNormForwardArgs& s, int64_t n) {
  const float* x = Floats(s.x) + n * s.D;
  const float* w = Floats(s.w);
  const float* b = Floats(s.b);
  float* y = Floats(s.y) + n * s.D;
  const float mean = Sum(x, s.D) / static_cast<float>(s.D);
  const float rstd = Rstd(SumSquares(x, s.D, mean), s.D, s.eps);
  const Vec scale = Set(rstd);
  if (b != nullptr) {
    ForRow(s.D, [&](auto load, auto store) DELINK_LAMBDA {
      store(y, Fma((load(x) - mean) * scale, load(w), load(b)));
    });
  } else {
    ForRow(s.D, [&](auto load, auto store) DELINK_LAMBDA {
      store(y, (load(x) - mean) * scale * load(w));
    });
  }
  if (s.rstd != nullptr) {
    Floats(s.mean)[n] = mean;
    Floats(s.rstd)[n] = rstd;
  }
}

void RmsNormRow(const RmsNormForwardArgs& s, int64_t n) {
  const float* x = Floats(s.x) + n * s.D;
  const float* w = Floats(s.w);
  float* y = Floats(s.y) + n * s.D;
  const float rstd = Rstd(SumSquares(x, s.D, 0.0F), s.D, s.eps);
  ForRow(s.D, [&](auto load, auto store)
                  DELINK_LAMBDA { store(y, load(x) * rstd * load(w)); });
  if (s.rstd != nullptr) Floats(s.rstd)[n] = rstd;
}

// With mean 0 and kCentred false this is RMS norm.
template <bool kCentred>
void BackwardInputRow(int64_t D, const float* dy, const float* x,
                      const float* w, float mean, float rstd, float* dx) {
  Vec sum_g{}, sum_gx{};
  ForRow(D, [&](auto load, auto) DELINK_LAMBDA {
    const Vec g = load(dy) * load(w);
    if (kCentred) sum_g += g;
    sum_gx = Fma(g, (load(x) - mean) * rstd, sum_gx);
  });
  const float inverse = 1.0F / static_cast<float>(D);
  const Vec mean_g = Set(ReduceAdd(sum_g) * inverse);
  const Vec mean_gx = Set(-ReduceAdd(sum_gx) * inverse);
  ForRow(D, [&](auto load, auto store) DELINK_LAMBDA {
    const Vec g = load(dy) * load(w);
    const Vec xhat = (load(x) - mean) * rstd;
    store(dx, Fma(xhat, mean_gx, kCentred ? g - mean_g : g) * rstd);
  });
}

}  // namespace

void LayerNormForward(Stream&, const LayerNormForwardArgs& s) {
  if (s.D == 0) return;
#pragma omp parallel for schedule(static) if (s.N * s.D > kParallelFrom)
  for (int64_t n = 0; n < s.N; ++n) LayerNormRow(s, n);
}

void RmsNormForward(Stream&, const RmsNormForwardArgs& s) {
  if (s.D == 0) return;
#pragma omp parallel for schedule(static) if (s.N * s.D > kParallelFrom)
  for (int64_t n = 0; n < s.N; ++n) RmsNormRow(s, n);
}

void LayerNormBackwardInput(Stream&, const LayerNormBackwardInputArgs& s) {
  if (s.D == 0) return;
#pragma omp parallel for schedule(static) if (s.N * s.D > kParallelFrom)
  for (int64_t n = 0; n < s.N; ++n) {
    BackwardInputRow<true>(s.D, Floats(s.dy) + n * s.D, Floats(s.x) + n * s.D,
                           Floats(s.w), Floats(s.mean)[n], Floats(s.rstd)[n],
                           Floats(s.dx) + n * s.D);
  }
}

void RmsNormBackwardInput(Stream&, const RmsNormBackwardInputArgs& s) {
  if (s.D == 0) return;
#pragma omp parallel for schedule(static) if (s.N * s.D > kParallelFrom)
  for (int64_t n = 0; n < s.N; ++n) {
    BackwardInputRow<false>(s.D, Floats(s.dy) + n * s.D, Floats(s.x) + n * s.D,
                            Floats(s.w), 0.0F, Floats(s.rstd)[n],
                            Floats(s.dx) + n * s.D);
  }
}

void LayerNormBackwardWeight(Stream&, const LayerNormBackwardWeightArgs& s) {
  SumColumns({.N = s.N,
              .D = s.D,
              .dy = Floats(s.dy),
              .x = Floats(s.x),
              .mean = Floats(s.mean),
              .rstd = Floats(s.rstd),
              .dw = Floats(s.dw),
              .db = Floats(s.db),
              .accumulate = s.accumulate});
}

void RmsNormBackwardWeight(Stream&, const RmsNormBackwardWeightArgs& s) {
  SumColumns({.N = s.N,
              .D = s.D,
              .dy = Floats(s.dy),
              .x = Floats(s.x),
              .rstd = Floats(s.rstd),
              .dw = Floats(s.dw),
              .accumulate = s.accumulate});
}

void BiasGrad(Stream&, const BiasGradArgs& s) {
  SumColumns({.N = s.N,
              .D = s.D,
              .dy = Floats(s.dy),
              .db = Floats(s.db),
              .accumulate = s.accumulate});
}

}  // namespace delink::cpu::DELINK_SIMD
