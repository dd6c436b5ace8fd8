// exp, the normal distribution and activations on vectors, to about one unit in
// the last place. NaN stays NaN.
#pragma once

#include "layers/kernels/cpu/simd/vec.h"

namespace delink::cpu::DELINK_SIMD {

// Adding kRound rounds to a whole number n and leaves n in the low bits.
inline constexpr float kRound = 12582912.0F;  // 1.5 * 2^23

// p 2^n for p about 1 and n in [-127, 128], given n + kRound: 0 at -127,
// infinite at 128.
static DELINK_INLINE Vec Scale(Vec p, Vec rounded) {
  return p * (Vec)(((BitVec)rounded + 127u) << 23);
}

// exp for x in [-88, 88.7]. Results below 2^-126 are 0, those from 2^127.5 on
// infinite. The polynomial has the least relative error for |x| <= ln(2) / 2,
// at most 9e-8, of those that are 1 at 0.
static DELINK_INLINE Vec ExpWithin(Vec x) {
  const Vec rounded = Fma(x, Set(1.44269504F), Set(kRound));
  const Vec n = rounded - kRound;
  const Vec r = Fma(n, Set(-0.69314718F), x);
  Vec p = Fma(Set(8.29030611e-3F), r, Set(4.18979754e-2F));
  p = Fma(p, r, Set(0.166676366F));
  p = Fma(p, r, Set(0.499991492F));
  p = Fma(p, r, Set(0.999999707F));
  p = Fma(p, r, Set(1.0F));
  return Scale(p, rounded);
}
static DELINK_INLINE Vec Exp(Vec x) {
  return ExpWithin(Min(Set(88.7F), Max(Set(-88.0F), x)));
}

// A polynomial for 2^r, |r| <= 1/2, likewise.
static DELINK_INLINE Vec Exp2OfHalf(Vec r) {
  Vec p = Fma(Set(1.32647271e-3F), r, Set(9.67151265e-3F));
  p = Fma(p, r, Set(5.55073374e-2F));
  p = Fma(p, r, Set(0.240222421F));
  p = Fma(p, r, Set(0.693146978F));
  return Fma(p, r, Set(1.0F));
}

// 2^x for x in [-127, 128].
static DELINK_INLINE Vec Exp2Within(Vec x) {
  const Vec rounded = x + kRound;
  return Scale(Exp2OfHalf(x - (rounded - kRound)), rounded);
}
static DELINK_INLINE Vec Exp2(Vec x) {
  return Exp2Within(Min(Set(128.0F), Max(Set(-127.0F), x)));
}

// 2^x for x in [-125, 125], where results are neither 0 nor infinite.
static DELINK_INLINE Vec Exp2Normal(Vec x) {
  const Vec rounded = x + kRound;
  const Vec p = Exp2OfHalf(x - (rounded - kRound));
  return (Vec)((BitVec)p + ((BitVec)rounded << 23));
}

// x in [-bound, bound].
static DELINK_INLINE Vec Clamp(Vec x, float bound) {
  return Min(Set(bound), Max(Set(-bound), x));
}

// 1 / (1 + 2^exponent), up to its nearest 2^-125.
static DELINK_INLINE Vec Logistic2(Vec exponent) {
  return Reciprocal(1.0F + Exp2Normal(Clamp(exponent, 125.0F)));
}

// The normal distribution function. With t = |x| / sqrt(2): near 0 a series
// for erf, elsewhere erfc(t) = exp(a polynomial in t) (N. Juffa's erff).
static DELINK_INLINE Vec NormalCdf(Vec x) {
  const Vec a = x * 0.70710678F;
  const Vec t = Abs(a);
  const Vec s = a * a;
  Vec tail = Fma(Set(-1.72853470e-5F), t, Set(3.83197126e-4F));
  const Vec u = Fma(Set(-3.88396438e-3F), t, Set(2.42546219e-2F));
  tail = Fma(tail, s, u);
  tail = Fma(tail, t, Set(-1.06777877e-1F));
  tail = Fma(tail, t, Set(-6.34846687e-1F));
  tail = Fma(tail, t, Set(-1.28717512e-1F));
  tail = Fma(tail, t, -t);
  const Vec half_erfc = 0.5F * Exp(tail);
  Vec near = Fma(Set(-5.96761703e-4F), s, Set(4.99119423e-3F));
  near = Fma(near, s, Set(-2.67681349e-2F));
  near = Fma(near, s, Set(1.12819925e-1F));
  near = Fma(near, s, Set(-3.76125336e-1F));
  near = Fma(near, s, Set(1.28379166e-1F));
  near = Fma(near, a, a);
  const Vec far = a < Vec{} ? half_erfc : 1.0F - half_erfc;
  return t > Set(0.927734375F) ? far : Fma(near, Set(0.5F), Set(0.5F));
}

static DELINK_INLINE Vec Sigmoid(Vec x) { return Logistic2(x * -1.44269504F); }

// With e = exp(-2u), u = sqrt(2/pi) (x + 0.044715 x^3), the tanh form is
// x / (1 + e). This is log2(e).
static DELINK_INLINE Vec TanhExponent(Vec x) {
  return x * Fma(x * x, Set(-0.10294324F), Set(-2.3022082F));
}

static DELINK_INLINE Vec TanhGelu(Vec x) {
  return x * Logistic2(TanhExponent(x));
}

static DELINK_INLINE Vec TanhDerivative(Vec x) {
  // Past +-9.9 the derivative is 0 or 1 in f32; nothing may overflow there.
  const Vec z = Clamp(x, 9.9F);
  const Vec e = Exp2Normal(TanhExponent(z));
  const Vec gate = Reciprocal(1.0F + e);
  const Vec two_du = Fma(z * z, Set(0.21406445F), Set(1.5957691F));
  // 1 - gate, without cancellation, is e * gate.
  return Fma(z * two_du, gate * (e * gate), gate);
}

static DELINK_INLINE Vec ErfDerivative(Vec x) {
  const Vec density = Exp(x * x * -0.5F) * 0.39894228F;
  return Fma(x, density, NormalCdf(x));
}

}  // namespace delink::cpu::DELINK_SIMD
