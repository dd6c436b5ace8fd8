// Instruction sets that the CPU kernels are compiled for, chosen at run time.
//
// One body is inlined into a function for each set. Floating-point contraction
// is off in these files and sums have fixed lanes, so that every set gives the
// same bits.
#pragma once

#if defined(__x86_64__)
#pragma GCC diagnostic push
// GCC 12's own header has an intrinsic with an uninitialized lane.
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

namespace delink::cpu {

enum class Instructions { kBaseline = 0, kAvx2 = 1, kAvx512 = 2 };

// Whether this build has code for a set; DELINK_ONLY_SIMD (CMakeLists.txt)
// names the one that it has beside the baseline.
constexpr bool IsBuilt(Instructions set) {
#if defined(DELINK_ONLY_SIMD)
  return set == Instructions::kBaseline ||
         set == Instructions::DELINK_ONLY_SIMD;
#else
  (void)set;
  return true;
#endif
}

#if defined(__x86_64__)
#define DELINK_TARGET_AVX2 __attribute__((target("avx2")))
#define DELINK_TARGET_AVX512 \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2")))
inline bool Has(Instructions set) {
  if (!IsBuilt(set)) return false;
  switch (set) {
    case Instructions::kBaseline:
      return true;
    case Instructions::kAvx2:
      return __builtin_cpu_supports("avx2") != 0;
    case Instructions::kAvx512:
      return __builtin_cpu_supports("avx512f") != 0 &&
             __builtin_cpu_supports("avx512bw") != 0 &&
             __builtin_cpu_supports("avx512dq") != 0 &&
             __builtin_cpu_supports("avx512vl") != 0;
  }
  return false;
}
#else
#define DELINK_TARGET_AVX2
#define DELINK_TARGET_AVX512
inline bool Has(Instructions set) { return set == Instructions::kBaseline; }
#endif

inline Instructions BestInstructions() {
  if (Has(Instructions::kAvx512)) return Instructions::kAvx512;
  if (Has(Instructions::kAvx2)) return Instructions::kAvx2;
  return Instructions::kBaseline;
}

}  // namespace delink::cpu
