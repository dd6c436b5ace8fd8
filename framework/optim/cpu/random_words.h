// Private to framework/optim/cpu: the random words of a tile of elements, with
// each instruction set.
#pragma once

#include <cstdint>
#include <cstring>

#include "framework/base/rng.h"
#include "framework/optim/cpu/instructions.h"

namespace delink::cpu {

inline constexpr int64_t kPhiloxAtOnce = 32;

// Philox(key, counters[i], stream) for kPhiloxAtOnce counters, one after the
// other: four words each, in `words`.
//
// With wide instructions a lane of 64 bits has one word, in its lower half; the
// upper half is ignored.
inline void PhiloxWordsByBaseline(RngKey key, const uint64_t* counters,
                                  uint64_t stream, uint32_t* words) {
  for (int64_t i = 0; i < kPhiloxAtOnce; ++i) {
    const auto four = Philox(key, counters[i], stream);
    std::memcpy(words + 4 * i, four.data(), sizeof(four));
  }
}

#if defined(__x86_64__)
DELINK_TARGET_AVX512 inline void Fill(uint64_t value, __m512i* lanes) {
  *lanes = _mm512_set1_epi64(static_cast<long long>(value));
}
DELINK_TARGET_AVX2 inline void Fill(uint64_t value, __m256i* lanes) {
  *lanes = _mm256_set1_epi64x(static_cast<long long>(value));
}

DELINK_TARGET_AVX512 inline void PhiloxWordsByAvx512(RngKey key,
                                                     const uint64_t* counters,
                                                     uint64_t stream,
                                                     uint32_t* words) {
  constexpr int kLanes = 8, kVectors = kPhiloxAtOnce / kLanes;
  constexpr int kXorOfThree = 0x96;
  __m512i lower, m0, m1, k0, k1;
  Fill(0xFFFFFFFF, &lower);
  Fill(kPhiloxFactors[0], &m0);
  Fill(kPhiloxFactors[1], &m1);
  __m512i x0[kVectors], x1[kVectors], x2[kVectors], x3[kVectors];
  for (int j = 0; j < kVectors; ++j) {
    x0[j] = _mm512_loadu_si512(counters + kLanes * j);
    x1[j] = _mm512_srli_epi64(x0[j], 32);
    Fill(stream, &x2[j]);
    Fill(stream >> 32, &x3[j]);
  }
  for (int round = 0; round < kPhiloxRounds; ++round) {
    Fill(key.lo, &k0);
    Fill(key.hi, &k1);
    for (int j = 0; j < kVectors; ++j) {
      const __m512i p0 = _mm512_mul_epu32(m0, x0[j]);
      const __m512i p1 = _mm512_mul_epu32(m1, x2[j]);
      x0[j] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p1, 32), x1[j], k0,
                                        kXorOfThree);
      x2[j] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p0, 32), x3[j], k1,
                                        kXorOfThree);
      x1[j] = p1;
      x3[j] = p0;
    }
    key = NextPhiloxKey(key);
  }
  // Puts the pairs of a counter side by side: of the first four counters, and
  // of the others.
  const __m512i first = _mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0);
  const __m512i others = _mm512_set_epi64(15, 7, 14, 6, 13, 5, 12, 4);
  for (int j = 0; j < kVectors; ++j) {
    const __m512i a = _mm512_or_si512(_mm512_and_si512(x0[j], lower),
                                      _mm512_slli_epi64(x1[j], 32));
    const __m512i b = _mm512_or_si512(_mm512_and_si512(x2[j], lower),
                                      _mm512_slli_epi64(x3[j], 32));
    uint32_t* const to = words + 4 * kLanes * j;
    _mm512_storeu_si512(to, _mm512_permutex2var_epi64(a, first, b));
    _mm512_storeu_si512(to + 2 * kLanes,
                        _mm512_permutex2var_epi64(a, others, b));
  }
}

DELINK_TARGET_AVX2 inline void PhiloxWordsByAvx2(RngKey begin,
                                                 const uint64_t* counters,
                                                 uint64_t stream,
                                                 uint32_t* words) {
  // Two vectors at a time: there are sixteen registers.
  constexpr int kLanes = 4, kVectors = 2;
  __m256i lower, m0, m1, k0, k1;
  Fill(0xFFFFFFFF, &lower);
  Fill(kPhiloxFactors[0], &m0);
  Fill(kPhiloxFactors[1], &m1);
  for (int at = 0; at < kPhiloxAtOnce; at += kVectors * kLanes) {
    __m256i x0[kVectors], x1[kVectors], x2[kVectors], x3[kVectors];
    for (int j = 0; j < kVectors; ++j) {
      x0[j] = _mm256_loadu_si256(
          reinterpret_cast<const __m256i*>(counters + at + kLanes * j));
      x1[j] = _mm256_srli_epi64(x0[j], 32);
      Fill(stream, &x2[j]);
      Fill(stream >> 32, &x3[j]);
    }
    RngKey key = begin;
    for (int round = 0; round < kPhiloxRounds; ++round) {
      Fill(key.lo, &k0);
      Fill(key.hi, &k1);
      for (int j = 0; j < kVectors; ++j) {
        const __m256i p0 = _mm256_mul_epu32(m0, x0[j]);
        const __m256i p1 = _mm256_mul_epu32(m1, x2[j]);
        x0[j] = _mm256_xor_si256(
            _mm256_xor_si256(_mm256_srli_epi64(p1, 32), x1[j]), k0);
        x2[j] = _mm256_xor_si256(
            _mm256_xor_si256(_mm256_srli_epi64(p0, 32), x3[j]), k1);
        x1[j] = p1;
        x3[j] = p0;
      }
      key = NextPhiloxKey(key);
    }
    for (int j = 0; j < kVectors; ++j) {
      const __m256i a = _mm256_or_si256(_mm256_and_si256(x0[j], lower),
                                        _mm256_slli_epi64(x1[j], 32));
      const __m256i b = _mm256_or_si256(_mm256_and_si256(x2[j], lower),
                                        _mm256_slli_epi64(x3[j], 32));
      // The words of counters 0 and 2, and of 1 and 3.
      const __m256i even = _mm256_unpacklo_epi64(a, b);
      const __m256i odd = _mm256_unpackhi_epi64(a, b);
      auto* const to =
          reinterpret_cast<__m256i*>(words + 4 * (at + kLanes * j));
      _mm256_storeu_si256(to, _mm256_permute2x128_si256(even, odd, 0x20));
      _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(even, odd, 0x31));
    }
  }
}

inline void PhiloxWords(Instructions set, RngKey key, const uint64_t* counters,
                        uint64_t stream, uint32_t* words) {
  switch (set) {
    case Instructions::kAvx512:
      return PhiloxWordsByAvx512(key, counters, stream, words);
    case Instructions::kAvx2:
      return PhiloxWordsByAvx2(key, counters, stream, words);
    case Instructions::kBaseline:
      return PhiloxWordsByBaseline(key, counters, stream, words);
  }
}
#else
inline void PhiloxWords(Instructions, RngKey key, const uint64_t* counters,
                        uint64_t stream, uint32_t* words) {
  PhiloxWordsByBaseline(key, counters, stream, words);
}
#endif

}  // namespace delink::cpu
