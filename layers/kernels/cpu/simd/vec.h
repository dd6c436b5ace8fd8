// Vectors of floats with the width of the instruction set, on the vector
// extension of GCC and Clang. Multiply-adds are explicit (Fma), so that
// a value's bits do not depend on how a compiler contracts an expression.
// Loads widen bf16 and stores round to it, so a kernel is one template for both
// types of memory. (framework/tensor/bfloat16.h defines the rounding; its
// functions are inline, so they are not called here, see simd.h.)
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "framework/tensor/bfloat16.h"

#define DELINK_INLINE inline __attribute__((always_inline))
#define DELINK_LAMBDA __attribute__((always_inline))

namespace delink::cpu::DELINK_SIMD {

#if defined(__AVX512F__)
inline constexpr int kWidth = 16;
// Registers of the matrix micro-kernel: rows x vectors of columns.
inline constexpr int kMaxRows = 6;
inline constexpr int kMaxVecs = 4;
#elif defined(__AVX2__)
inline constexpr int kWidth = 8;
inline constexpr int kMaxRows = 6;
inline constexpr int kMaxVecs = 2;
#else
inline constexpr int kWidth = 4;
inline constexpr int kMaxRows = 6;
inline constexpr int kMaxVecs = 2;
#endif

typedef float Vec __attribute__((vector_size(kWidth * 4)));
typedef int32_t IntVec __attribute__((vector_size(kWidth * 4)));
typedef uint32_t BitVec __attribute__((vector_size(kWidth * 4)));
typedef uint64_t WideVec __attribute__((vector_size(kWidth * 4)));
typedef uint16_t HalfVec __attribute__((vector_size(kWidth * 2)));

template <typename T>
inline constexpr bool kIsF32 = false;
template <>
inline constexpr bool kIsF32<float> = true;

// Not Vec{} + value: this is 0 for -0, so it compiles to an addition.
static DELINK_INLINE Vec Set(float value) {
#if defined(__AVX512F__)
  return (Vec)_mm512_set1_ps(value);
#elif defined(__AVX2__)
  return (Vec)_mm256_set1_ps(value);
#else
  return Vec{value, value, value, value};
#endif
}

static DELINK_INLINE Vec Load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

static DELINK_INLINE void Store(float* p, Vec v) {
  std::memcpy(p, &v, sizeof(v));
}

// The first `count` lanes, 0 < count <= kWidth; the others are 0.
static DELINK_INLINE Vec LoadPartial(const float* p, int64_t count) {
#if defined(__AVX512F__)
  return (Vec)_mm512_maskz_loadu_ps(
      static_cast<__mmask16>(0xFFFFu >> (16 - count)), p);
#else
  Vec v{};
  for (int i = 0; i < kWidth; ++i) {
    if (i < count) v[i] = p[i];
  }
  return v;
#endif
}

static DELINK_INLINE void StorePartial(float* p, Vec v, int64_t count) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>(0xFFFFu >> (16 - count)),
                        (__m512)v);
#else
  for (int i = 0; i < kWidth; ++i) {
    if (i < count) p[i] = v[i];
  }
#endif
}

#if defined(__AVX512F__)
// Moves words 0 .. 15 to the upper halves of 16 floats, and back.
static DELINK_INLINE __m512i UpperHalves() {
  BitVec words;
  for (uint32_t i = 0; i < 16; ++i) words[i] = i << 16 | i;
  return (__m512i)words;
}
static DELINK_INLINE __m512i OddWords() {
  BitVec words;
  for (uint32_t i = 0; i < 16; ++i)
    words[i] = (4 * i + 3) % 32 << 16 | (4 * i + 1) % 32;
  return (__m512i)words;
}
#endif

static DELINK_INLINE Vec Widen(HalfVec v) {
#if defined(__AVX512F__)
  return (Vec)_mm512_maskz_permutexvar_epi16(
      0xAAAAAAAA, UpperHalves(), _mm512_castsi256_si512((__m256i)v));
#elif defined(__AVX2__)
  return (Vec)((BitVec)_mm256_cvtepu16_epi32((__m128i)v) << 16);
#else
  return (Vec)(__builtin_convertvector(v, BitVec) << 16);
#endif
}

// NaNs from arithmetic are quiet already, so they are not changed.
static DELINK_INLINE HalfVec RoundToHalf(Vec v) {
  const BitVec bits = (BitVec)v;
  const BitVec rounded = v == v ? bits + 0x7FFFu + ((bits >> 16) & 1u) : bits;
#if defined(__AVX512F__)
  const __m512i halves =
      _mm512_maskz_permutexvar_epi16(0xFFFFFFFF, OddWords(), (__m512i)rounded);
  HalfVec result;
  std::memcpy(&result, &halves, sizeof(result));
  return result;
#elif defined(__AVX2__)
  const __m256i halves = (__m256i)(rounded >> 16);
  const __m256i packed = _mm256_packus_epi32(halves, halves);
  return (HalfVec)_mm256_castsi256_si128(
      _mm256_permute4x64_epi64(packed, 0x08));
#else
  return __builtin_convertvector(rounded >> 16, HalfVec);
#endif
}

static DELINK_INLINE HalfVec Narrow(Vec v) {
#if defined(__AVX512BF16__)
  constexpr int kSubnormal = 0x20;
  if (__builtin_expect(_mm512_fpclass_ps_mask((__m512)v, kSubnormal) == 0, 1)) {
    return (HalfVec)_mm512_cvtneps_pbh((__m512)v);
  }
#endif
  return RoundToHalf(v);
}

static DELINK_INLINE Vec Load(const BFloat16* p) {
  HalfVec v;
  std::memcpy(&v, p, sizeof(v));
  return Widen(v);
}

static DELINK_INLINE void Store(BFloat16* p, Vec v) {
  const HalfVec half = Narrow(v);
  std::memcpy(p, &half, sizeof(half));
}

// Stores a, followed by b. The rounding instructions treat numbers below 2^-126
// as 0, but every target must give the same bits. So they are not used if in
// some lane the smaller of |a| and |b| is below 2^-126 (also for 0, which this
// test does not tell apart).
static DELINK_INLINE void StorePair(BFloat16* p, Vec a, Vec b) {
#if defined(__AVX512BF16__)
  constexpr int kSmallerBySize = 2;
  const __m512 smaller =
      _mm512_maskz_range_ps(0xFFFF, (__m512)a, (__m512)b, kSmallerBySize);
  const __mmask16 small =
      _mm512_testn_epi32_mask((__m512i)smaller, _mm512_set1_epi32(0x7F800000));
  if (__builtin_expect(small == 0, 1)) {
    const __m512bh halves = _mm512_cvtne2ps_pbh((__m512)b, (__m512)a);
    std::memcpy(p, &halves, sizeof(halves));
    return;
  }
#endif
  Store(p, a);
  Store(p + kWidth, b);
}

static DELINK_INLINE Vec LoadPartial(const BFloat16* p, int64_t count) {
#if defined(__AVX512F__)
  return Widen((HalfVec)_mm256_maskz_loadu_epi16(
      static_cast<__mmask16>(0xFFFFu >> (16 - count)), p));
#else
  HalfVec v{};
  for (int i = 0; i < kWidth; ++i) {
    if (i < count) v[i] = p[i].bits;
  }
  return Widen(v);
#endif
}

static DELINK_INLINE void StorePartial(BFloat16* p, Vec v, int64_t count) {
  const HalfVec half = Narrow(v);
#if defined(__AVX512F__)
  _mm256_mask_storeu_epi16(p, static_cast<__mmask16>(0xFFFFu >> (16 - count)),
                           (__m256i)half);
#else
  for (int i = 0; i < kWidth; ++i) {
    if (i < count) p[i].bits = half[i];
  }
#endif
}

// One element.
static DELINK_INLINE float LoadOne(const float* p) { return *p; }
static DELINK_INLINE float LoadOne(const BFloat16* p) {
  const uint32_t bits = uint32_t{p->bits} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
static DELINK_INLINE void StoreOne(float* p, float value) { *p = value; }
static DELINK_INLINE void StoreOne(BFloat16* p, float value) {
  p->bits = Narrow(Set(value))[0];
}

// a * b + c; rounded once if the instruction set can.
static DELINK_INLINE Vec Fma(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
  return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
  return (Vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
  return a * b + c;
#endif
}

#if defined(__AVX512BF16__)
// a[0] * b[0] + a[1] * b[1] + c of the two bf16 in each lane of a and b.
// Subnormal numbers count as 0.
static DELINK_INLINE Vec AddPairs(Vec a, Vec b, Vec c) {
  return (Vec)_mm512_dpbf16_ps((__m512)c, (__m512bh)a, (__m512bh)b);
}
#endif

// Returns b if either is NaN, so that bounds do not hide a NaN in b.
static DELINK_INLINE Vec Max(Vec a, Vec b) {
#if defined(__AVX512F__)
  return (Vec)_mm512_maskz_max_ps(0xFFFF, (__m512)a, (__m512)b);
#elif defined(__AVX2__)
  return (Vec)_mm256_max_ps((__m256)a, (__m256)b);
#else
  return a > b ? a : b;
#endif
}
static DELINK_INLINE Vec Min(Vec a, Vec b) {
#if defined(__AVX512F__)
  return (Vec)_mm512_maskz_min_ps(0xFFFF, (__m512)a, (__m512)b);
#elif defined(__AVX2__)
  return (Vec)_mm256_min_ps((__m256)a, (__m256)b);
#else
  return a < b ? a : b;
#endif
}

// 1 / a for 2^-126 < |a| < 2^126, to a unit in the last place. Several times as
// fast as division.
static DELINK_INLINE Vec Reciprocal(Vec a) {
#if defined(__AVX512F__)
  const Vec near = (Vec)_mm512_maskz_rcp14_ps(0xFFFF, (__m512)a);
  return Fma(near, Fma(-a, near, Set(1.0F)), near);
#else
  return 1.0F / a;
#endif
}

static DELINK_INLINE Vec Abs(Vec a) { return (Vec)((IntVec)a & 0x7FFFFFFF); }

// Sums of halves: the order is fixed.
static DELINK_INLINE float ReduceAdd(Vec v) {
  typedef float Four __attribute__((vector_size(16)));
#if defined(__AVX512F__)
  typedef float Eight __attribute__((vector_size(32)));
  const Eight eight =
      __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
      __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
#elif defined(__AVX2__)
  const Vec eight = v;
#endif
#if defined(__AVX2__)
  const Four four = __builtin_shufflevector(eight, eight, 0, 1, 2, 3) +
                    __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
#else
  const Four four = v;
#endif
  return (four[0] + four[2]) + (four[1] + four[3]);
}

static DELINK_INLINE float ReduceMax(Vec v) {
  float lane[kWidth];
  std::memcpy(lane, &v, sizeof(v));
  for (int half = kWidth / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) {
      lane[i] = lane[i] > lane[i + half] ? lane[i] : lane[i + half];
    }
  }
  return lane[0];
}

// The first `count` lanes; the others are 0.
static DELINK_INLINE Vec First(Vec v, int64_t count) {
#if defined(__AVX512F__)
  return (Vec)_mm512_maskz_mov_ps(
      static_cast<__mmask16>(0xFFFFu >> (16 - count)), (__m512)v);
#else
  for (int i = 0; i < kWidth; ++i) v[i] = i < count ? v[i] : 0.0F;
  return v;
#endif
}

// Bit i says whether a[i] > b[i].
static DELINK_INLINE uint32_t Greater(Vec a, Vec b) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GT_OQ);
#elif defined(__AVX2__)
  return static_cast<uint32_t>(_mm256_movemask_ps((__m256)(a > b)));
#else
  uint32_t bits = 0;
  for (int i = 0; i < kWidth; ++i) bits |= (a[i] > b[i] ? 1u : 0u) << i;
  return bits;
#endif
}

// The product of the low halves of 64-bit lanes.
static DELINK_INLINE WideVec MultiplyLow(WideVec a, WideVec b) {
#if defined(__AVX512F__)
  return (WideVec)_mm512_maskz_mul_epu32(0xFF, (__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (WideVec)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#else
  return (a & 0xFFFFFFFF) * (b & 0xFFFFFFFF);
#endif
}

static DELINK_INLINE WideVec Xor(WideVec a, WideVec b, WideVec c) {
#if defined(__AVX512F__)
  return (WideVec)_mm512_ternarylogic_epi64((__m512i)a, (__m512i)b, (__m512i)c,
                                            0x96);
#else
  return a ^ b ^ c;
#endif
}

}  // namespace delink::cpu::DELINK_SIMD
