// Masters of bf16 weights, including forms that take less than the 4 bytes of
// an f32. Plain functions for CPU and CUDA kernels.
//
// A split master is the weight and 16 further bits. It is exact, because the
// weight is rounded to the nearest, ties away from zero: low bits from 0x8000
// on say that it was rounded up. (Ties to even would be ambiguous: the low bits
// of a tie do not say which way it went.) NaN stays NaN, but may get another
// payload. A master that is too large for bf16 has an infinite weight and is
// still exact.
#pragma once

#include <bit>
#include <cstdint>

namespace delink {

// The form of the parameters that an optimizer updates.
enum class MasterForm : uint8_t {
  kWhole,  // f32 beside bf16 weights; other weights are their own master
  kSplit,  // bf16 weights and the 16 bits that they lack: SplitMaster
  kNone,   // bf16 weights alone, rounded stochastically
};

namespace internal {
constexpr bool IsNan(uint32_t f32_bits) {
  return (f32_bits & 0x7FFFFFFF) > 0x7F800000;
}
constexpr uint16_t QuietNan(uint32_t f32_bits) {
  return static_cast<uint16_t>((f32_bits >> 16) | 0x40);
}
}  // namespace internal

struct SplitMaster {
  uint16_t weight;  // the bits of a bf16
  uint16_t low;

  static constexpr SplitMaster Of(float master) {
    const auto bits = std::bit_cast<uint32_t>(master);
    if (internal::IsNan(bits)) {
      return {internal::QuietNan(bits), static_cast<uint16_t>(bits & 0x7FFF)};
    }
    return {static_cast<uint16_t>((bits + 0x8000) >> 16),
            static_cast<uint16_t>(bits)};
  }
  constexpr float Value() const {
    const uint32_t rounded_up = low >= 0x8000 ? 1 : 0;
    return std::bit_cast<float>(((uint32_t{weight} - rounded_up) << 16) | low);
  }
};

// The bits of one of the two bf16 that x lies between. `random` is uniform over
// 2^16 numbers; the nearer x is to a neighbour, the likelier that one is, and
// the mean is x. If x is a bf16 it does not change; NaN stays NaN.
constexpr uint16_t RoundStochastically(float x, uint16_t random) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if (internal::IsNan(bits)) return internal::QuietNan(bits);
  return static_cast<uint16_t>((bits + random) >> 16);
}

}  // namespace delink
