// Layer norm and RMS norm; ref/norm.cc has the formulas. Rows are independent.
// The sums over rows take columns instead: a thread owns a range of columns and
// sums blocks of rows, then blocks.
#include "layers/kernels/cpu/simd/columns.h"
#include "layers/kernels/cpu/simd/norm_rows.h"
#include "layers/kernels/cpu/simd/simd.h"
#include "layers/kernels/cpu/threads.h"

namespace delink::cpu::DELINK_SIMD {
namespace {

const float* Floats(const void* p) { return static_cast<const float*>(p); }
float* Floats(void* p) { return static_cast<float*>(p); }

float Sum(const float* x, int64_t D) {
  Vec sum{};
  ForRow(D, [&](auto load, auto) DELINK_LAMBDA { sum += load(x); });
  return ReduceAdd(sum);
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

}  // namespace

void LayerNormForward(Stream&, const LayerNormForwardArgs& s) {
  if (s.D == 0) return;
#pragma omp parallel for schedule(static) if (s.N * s.D > kParallelFrom)
  for (int64_t n = 0; n < s.N; ++n) LayerNormRow(s, n);
}

void RmsNormForward(Stream&, const RmsNormForwardArgs& s) {
  if (s.D == 0) return;
#pragma omp parallel for schedule(static) if (s.N * s.D > kParallelFrom)
  for (int64_t n = 0; n < s.N; ++n) {
    const float rstd = RmsNormRow(s.D, s.eps, Floats(s.x) + n * s.D,
                                  Floats(s.w), Floats(s.y) + n * s.D);
    if (s.rstd != nullptr) Floats(s.rstd)[n] = rstd;
  }
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
