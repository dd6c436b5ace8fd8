// exp and the normal distribution on vectors, to about one unit in the last
// place. Not-a-number goes through.
#pragma once

#include "layers/kernels/cpu/simd/vec.h"

namespace delink::cpu::DELINK_SIMD {

// 2^n for whole n in [-127, 128], given n + kRound: 0 at -127, inf at 128.
inline constexpr float kRound = 12582912.0F;  // 1.5 * 2^23
static DELINK_INLINE Vec PowerOfTwo(Vec rounded) {
  const IntVec n = (IntVec)rounded - (IntVec)Set(kRound);
  return (Vec)((n + 127) << 23);
}

// Below 2^-126 the result is 0. Coefficients: Moshier's Cephes, expf.
static DELINK_INLINE Vec Exp(Vec x) {
  x = Min(Set(88.72283F), Max(Set(-88.0F), x));
  const Vec rounded = Fma(x, Set(1.44269504F), Set(kRound));
  const Vec n = rounded - kRound;
  Vec r = Fma(n, Set(-0.693359375F), x);
  r = Fma(n, Set(2.12194440e-4F), r);
  Vec p = Fma(Set(1.9875691500e-4F), r, Set(1.3981999507e-3F));
  p = Fma(p, r, Set(8.3334519073e-3F));
  p = Fma(p, r, Set(4.1665795894e-2F));
  p = Fma(p, r, Set(1.6666665459e-1F));
  p = Fma(p, r, Set(5.0000001201e-1F));
  p = Fma(p, r * r, r) + 1.0F;
  return p * PowerOfTwo(rounded);
}

// 2^x, Taylor's series about 0 up to the sixth power.
static DELINK_INLINE Vec Exp2(Vec x) {
  x = Min(Set(128.0F), Max(Set(-127.0F), x));
  const Vec rounded = x + kRound;
  const Vec r = x - (rounded - kRound);
  Vec p = Fma(Set(1.5403530e-4F), r, Set(1.3333558e-3F));
  p = Fma(p, r, Set(9.6181291e-3F));
  p = Fma(p, r, Set(5.5504109e-2F));
  p = Fma(p, r, Set(2.4022651e-1F));
  p = Fma(p, r, Set(6.9314718e-1F));
  p = Fma(p, r, Set(1.0F));
  return p * PowerOfTwo(rounded);
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

}  // namespace delink::cpu::DELINK_SIMD
