// The arithmetic of device code that g++ and the C library do not have. Where
// the device is allowed to be imprecise (__expf and its kin, rsqrtf) the
// emulation is exact to the last bit or two: tolerances are not tested here.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

inline float rsqrtf(float x) { return 1.0F / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float __frsqrt_rn(float x) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x)));
}

// The C library's headers declare some of these without offering them.
namespace delink::simt {
inline float FastExp(float x) { return std::exp(x); }
inline float FastLog(float x) { return std::log(x); }
inline float FastLog2(float x) { return std::log2(x); }
inline float FastLog10(float x) { return std::log10(x); }
inline float FastSin(float x) { return std::sin(x); }
inline float FastCos(float x) { return std::cos(x); }
inline float FastTan(float x) { return std::tan(x); }
inline float FastPow(float x, float y) { return std::pow(x, y); }
}  // namespace delink::simt
#define __expf ::delink::simt::FastExp
#define __logf ::delink::simt::FastLog
#define __log2f ::delink::simt::FastLog2
#define __log10f ::delink::simt::FastLog10
#define __sinf ::delink::simt::FastSin
#define __cosf ::delink::simt::FastCos
#define __tanf ::delink::simt::FastTan
#define __powf ::delink::simt::FastPow

inline float __fdividef(float x, float y) { return x / y; }
inline float __saturatef(float x) { return x > 1 ? 1.0F : x > 0 ? x : 0.0F; }

// Rounded to the nearest, and never contracted.
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __frcp_rn(float x) { return 1.0F / x; }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dsub_rn(double x, double y) { return x - y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __ddiv_rn(double x, double y) { return x / y; }
inline double __dsqrt_rn(double x) { return std::sqrt(x); }
inline double __fma_rn(double x, double y, double z) {
  return std::fma(x, y, z);
}

inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) {
  return std::bit_cast<long long>(x);
}
inline double __longlong_as_double(long long x) {
  return std::bit_cast<double>(x);
}
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) {
  return std::countl_zero(static_cast<unsigned long long>(x));
}
inline int __ffs(int x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1;
}
inline int __ffsll(long long x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<unsigned long long>(x)) + 1;
}
inline unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>(uint64_t{x} * y >> 32);
}
inline unsigned long long __umul64hi(unsigned long long x,
                                     unsigned long long y) {
  return static_cast<unsigned long long>(
      static_cast<unsigned __int128>(x) * y >> 64);
}

// CUDA has them in the global namespace.
#define DELINK_SIMT_MIN_MAX(T)                     \
  inline T min(T a, T b) { return b < a ? b : a; } \
  inline T max(T a, T b) { return a < b ? b : a; }
DELINK_SIMT_MIN_MAX(int)
DELINK_SIMT_MIN_MAX(unsigned)
DELINK_SIMT_MIN_MAX(long)
DELINK_SIMT_MIN_MAX(unsigned long)
DELINK_SIMT_MIN_MAX(long long)
DELINK_SIMT_MIN_MAX(unsigned long long)
#undef DELINK_SIMT_MIN_MAX
inline float min(float a, float b) { return std::fmin(a, b); }
inline float max(float a, float b) { return std::fmax(a, b); }
inline double min(double a, double b) { return std::fmin(a, b); }
inline double max(double a, double b) { return std::fmax(a, b); }
