// Counter-based random numbers, keyed by logical name.
//
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// SC11). A value is a pure function of (seed, name, index): the same on every
// rank and in any order of calls. Plain inline code, so that CPU and CUDA
// kernels share it.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace delink {

// A stream of random numbers. Derive sub-streams with Fold.
struct RngKey {
  uint32_t lo = 0;
  uint32_t hi = 0;
};

// The constants of Philox4x32-10.
inline constexpr int kPhiloxRounds = 10;
inline constexpr uint32_t kPhiloxFactors[2] = {0xD2511F53, 0xCD9E8D57};
constexpr RngKey NextPhiloxKey(RngKey key) {
  return {key.lo + 0x9E3779B9, key.hi + 0xBB67AE85};
}

// Four random words for 128-bit counter (c0, c1) under `key`.
constexpr std::array<uint32_t, 4> Philox(RngKey key, uint64_t c0, uint64_t c1) {
  uint32_t x0 = static_cast<uint32_t>(c0), x1 = static_cast<uint32_t>(c0 >> 32);
  uint32_t x2 = static_cast<uint32_t>(c1), x3 = static_cast<uint32_t>(c1 >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t p0 = uint64_t{kPhiloxFactors[0]} * x0;
    const uint64_t p1 = uint64_t{kPhiloxFactors[1]} * x2;
    const uint32_t y0 = static_cast<uint32_t>(p1 >> 32) ^ x1 ^ key.lo;
    const uint32_t y2 = static_cast<uint32_t>(p0 >> 32) ^ x3 ^ key.hi;
    x1 = static_cast<uint32_t>(p1);
    x3 = static_cast<uint32_t>(p0);
    x0 = y0;
    x2 = y2;
    key = NextPhiloxKey(key);
  }
  return {x0, x1, x2, x3};
}

// A sub-stream of `key` for a number, or for a name.
constexpr RngKey Fold(RngKey key, uint64_t value) {
  const auto r = Philox(key, value, uint64_t{0x64656c696e6b});
  return {r[0], r[1]};
}

// FNV-1a.
constexpr uint64_t HashName(std::string_view name) {
  uint64_t hash = 14695981039346656037ULL;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  }
  return hash;
}

constexpr RngKey Fold(RngKey key, std::string_view name) {
  return Fold(key, HashName(name));
}

constexpr RngKey KeyFromSeed(uint64_t seed) {
  return Fold(
      RngKey{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
      uint64_t{0});
}

// [0, 1), 24 bits.
constexpr float Uniform(uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24F;
}

// Elements 2 * `pair` and the next of a standard normal stream (Box-Muller, in
// double).
inline std::array<double, 2> NormalPair(RngKey key, uint64_t pair) {
  const auto r = Philox(key, pair, 0);
  constexpr double kTwoPi = 6.283185307179586476925286766559;
  // Two 32-bit words make one pair; (0, 1] keeps the logarithm finite.
  const double u1 = (r[0] + 1.0) * 0x1p-32;
  const double u2 = r[1] * 0x1p-32;
  const double radius = std::sqrt(-2.0 * std::log(u1));
  return {radius * std::cos(kTwoPi * u2), radius * std::sin(kTwoPi * u2)};
}

// Element `index` of the same stream.
inline double Normal(RngKey key, uint64_t index) {
  return NormalPair(key, index / 2)[index % 2];
}

}  // namespace delink
