// Norms of one row; ref/norm.cc has the formulas.
#pragma once

#include <cstdint>

#include "layers/kernels/cpu/simd/rows.h"

namespace delink::cpu::DELINK_SIMD {

// The sum over the whole vectors of a row; add(d, sum) adds the vector at d.
// There are four chains, since an addition waits for the one before it.
template <typename Add>
static DELINK_INLINE float SumVectors(int64_t D, const Add& add) {
  Vec sum[4] = {};
  int64_t d = 0;
  for (; d + 4 * kWidth <= D; d += 4 * kWidth) {
    for (int i = 0; i < 4; ++i) sum[i] = add(d + i * kWidth, sum[i]);
  }
  for (; d + kWidth <= D; d += kWidth) sum[0] = add(d, sum[0]);
  return ReduceAdd((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

template <typename T>
static inline float Sum(const T* x, int64_t D) {
  float total = SumVectors(
      D, [&](int64_t d, Vec sum) DELINK_LAMBDA { return sum + Load(x + d); });
  for (int64_t d = D / kWidth * kWidth; d < D; ++d) total += LoadOne(x + d);
  return total;
}

// sum of (x - shift)^2.
template <typename T>
static inline float SumSquares(const T* x, int64_t D, float shift) {
  float total = SumVectors(D, [&](int64_t d, Vec sum) DELINK_LAMBDA {
    const Vec centred = Load(x + d) - shift;
    return Fma(centred, centred, sum);
  });
  for (int64_t d = D / kWidth * kWidth; d < D; ++d) {
    const float centred = LoadOne(x + d) - shift;
    total += centred * centred;
  }
  return total;
}

// 1 / sqrt(sum / D + eps), with the same bits for a row at any place.
static inline float Rstd(float sum, int64_t D, double eps) {
  const double d = static_cast<double>(D);
  return static_cast<float>(__builtin_sqrt(d / (sum + eps * d)));
}

// y = x * rstd * w; returns rstd.
template <typename T>
static inline float RmsNormRow(int64_t D, double eps, const T* x, const T* w,
                               T* y) {
  const float rstd = Rstd(SumSquares(x, D, 0.0F), D, eps);
  ForRow(D, [&](auto load, auto store)
                DELINK_LAMBDA { store(y, load(x) * rstd * load(w)); });
  return rstd;
}

// With mean 0 and kCentred false this is RMS norm. `add`, which may be null or
// dx, is added to dx.
template <bool kCentred, typename T>
static void BackwardInputRow(int64_t D, const T* dy, const T* x, const T* w,
                             float mean, float rstd, T* dx,
                             const T* add = nullptr) {
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
    const Vec of_norm = Fma(xhat, mean_gx, kCentred ? g - mean_g : g) * rstd;
    store(dx, add != nullptr ? load(add) + of_norm : of_norm);
  });
}

}  // namespace delink::cpu::DELINK_SIMD
