// Private to framework/optim/cpu: a tile of parameters as floats, in all forms
// of masters. The arguments are AdamW's or UpdatedParams. A store(plane, at, n,
// values) writes values to elements [at, at + n) of a plane.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "framework/optim/arguments.h"
#include "framework/optim/cpu/random_words.h"
#include "framework/tensor/bfloat16.h"
#include "framework/tensor/master.h"

namespace delink::cpu {

inline constexpr int64_t kTile = 256;  // elements
// The stream of the random numbers that round weights (AdamWArgs).
inline constexpr uint64_t kStreamOfW = 0;

// BFloat16(x) as a selection between 32-bit numbers, which compilers can
// vectorize for every instruction set.
[[gnu::always_inline]] inline BFloat16 Rounded(float x) {
  const auto u = std::bit_cast<uint32_t>(x);
  const uint32_t number = u + 0x7FFF + ((u >> 16) & 1);
  const uint32_t quiet = u | 0x400000;
  BFloat16 rounded;
  rounded.bits = static_cast<uint16_t>((x == x ? number : quiet) >> 16);
  return rounded;
}

// The random half-words of n <= kTile elements from `at` on, by the key and the
// numbers of the arguments; `at` is a multiple of 8.
template <typename Args>
[[gnu::always_inline]] inline void RandomHalves(Instructions set, const Args& a,
                                                int64_t at, uint64_t stream,
                                                int64_t n, uint16_t* out) {
  static_assert(kPhiloxAtOnce == kTile / 8);
  uint64_t counters[kPhiloxAtOnce] = {};
  for (int64_t i = 0; 8 * i < n; ++i) {
    counters[i] = static_cast<uint64_t>(a.numbers(at + 8 * i) / 8);
  }
  uint32_t words[4 * kPhiloxAtOnce];
  PhiloxWords(set, a.key, counters, stream, words);
  // The lower half of a word first.
  static_assert(std::endian::native == std::endian::little);
  std::memcpy(out, words, sizeof(words));
}

template <typename Args, typename Store>
[[gnu::always_inline]] inline void RoundTile(const Args& a, int64_t at,
                                             uint64_t stream, int64_t n,
                                             const float* values, void* plane,
                                             const Store& store) {
  uint16_t random[kTile], rounded[kTile];
  RandomHalves(store.set, a, at, stream, n, random);
  for (int64_t i = 0; i < n; ++i) {
    rounded[i] = RoundStochastically(values[i], random[i]);
  }
  store(plane, at, n, rounded);
}

[[gnu::always_inline]] inline float Wide(float x) { return x; }
[[gnu::always_inline]] inline float Wide(uint16_t bf16) {
  return std::bit_cast<float>(uint32_t{bf16} << 16);
}

[[gnu::always_inline]] inline void Widen(const uint16_t* from, int64_t n,
                                         float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = Wide(from[i]);
}

// SplitMaster::Of as a selection between 32-bit numbers, as in Rounded.
[[gnu::always_inline]] inline SplitMaster Split(float master) {
  const auto u = std::bit_cast<uint32_t>(master);
  const bool number = master == master;
  const uint32_t weight = number ? (u + 0x8000) >> 16 : u >> 16 | 0x40;
  const uint32_t low = number ? u : u & 0x7FFF;
  return {static_cast<uint16_t>(weight), static_cast<uint16_t>(low)};
}

template <typename Args>
[[gnu::always_inline]] inline void LoadParams(const Args& a, int64_t at,
                                              int64_t n, float* p) {
  const auto* const w = static_cast<const uint16_t*>(a.w) + at;
  switch (a.master) {
    case MasterForm::kWhole:
      std::memcpy(p, static_cast<const float*>(a.p) + at,
                  static_cast<size_t>(n) * sizeof(float));
      return;
    case MasterForm::kSplit:
      for (int64_t i = 0; i < n; ++i) {
        p[i] = SplitMaster{w[i], a.low[at + i]}.Value();
      }
      return;
    case MasterForm::kNone:
      return Widen(w, n, p);
  }
}

template <typename Args, typename Store>
[[gnu::always_inline]] inline void StoreParams(const Args& a, int64_t at,
                                               int64_t n, const float* p,
                                               const Store& store) {
  uint16_t w[kTile], low[kTile];
  switch (a.master) {
    case MasterForm::kWhole:
      store(a.p, at, n, p);
      if (a.w == nullptr) return;
      for (int64_t i = 0; i < n; ++i) w[i] = Rounded(p[i]).bits;
      return store(a.w, at, n, w);
    case MasterForm::kSplit:
      for (int64_t i = 0; i < n; ++i) {
        const SplitMaster split = Split(p[i]);
        w[i] = split.weight;
        low[i] = split.low;
      }
      store(a.w, at, n, w);
      return store(a.low, at, n, low);
    case MasterForm::kNone:
      return RoundTile(a, at, kStreamOfW, n, p, a.w, store);
  }
}

}  // namespace delink::cpu
