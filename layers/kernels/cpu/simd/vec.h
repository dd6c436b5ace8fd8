// Vectors of floats as wide as the instruction set has them, on the vector
// extension of GCC and Clang. Multiply-adds are explicit (Fma), so that
// a value's bits do not depend on how a compiler contracts an expression.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define DELINK_INLINE inline __attribute__((always_inline))
#define DELINK_LAMBDA __attribute__((always_inline))

namespace delink::cpu::DELINK_SIMD {

#if defined(__AVX512F__)
inline constexpr int kWidth = 16;
// Registers of the matrix micro-kernel: rows times vectors of columns.
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
typedef uint64_t WideVec __attribute__((vector_size(kWidth * 4)));

static DELINK_INLINE Vec Set(float value) { return Vec{} + value; }

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

// a * b + c; rounded once where the instruction set can.
static DELINK_INLINE Vec Fma(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
  return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
  return (Vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
  return a * b + c;
#endif
}

// b where either is not a number, so that bounds do not hide one in b.
static DELINK_INLINE Vec Max(Vec a, Vec b) { return a > b ? a : b; }
static DELINK_INLINE Vec Min(Vec a, Vec b) { return a < b ? a : b; }

static DELINK_INLINE Vec Abs(Vec a) { return (Vec)((IntVec)a & 0x7FFFFFFF); }

// Sums of halves: the order is fixed.
static DELINK_INLINE float ReduceAdd(Vec v) {
  float lane[kWidth];
  std::memcpy(lane, &v, sizeof(v));
  for (int half = kWidth / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
  }
  return lane[0];
}

static DELINK_INLINE float ReduceMax(Vec v) {
  float max = v[0];
  for (int i = 1; i < kWidth; ++i) max = v[i] > max ? v[i] : max;
  return max;
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

}  // namespace delink::cpu::DELINK_SIMD
