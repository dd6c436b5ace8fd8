// bf16 as storage: the upper half of an f32. Code computes in float or double
// and rounds once, when it stores: to the nearest number, ties to even. Numbers
// that are too large become infinite; NaN stays NaN.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace delink {

struct BFloat16 {
  uint16_t bits;

  BFloat16() = default;
  template <typename Number>
  requires std::is_arithmetic_v<Number>
  explicit constexpr BFloat16(Number value) : bits(Nearest(value)) {}

  static constexpr BFloat16 FromBits(uint16_t bits) {
    BFloat16 result(0.0F);
    result.bits = bits;
    return result;
  }

  // Exact.
  constexpr operator float() const {  // NOLINT: as float, where it is read
    return std::bit_cast<float>(uint32_t{bits} << 16);
  }

 private:
  static constexpr uint16_t Nearest(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    if ((u & 0x7FFFFFFF) > 0x7F800000) {
      return static_cast<uint16_t>((u >> 16) | 0x40);
    }
    return static_cast<uint16_t>((u + 0x7FFF + ((u >> 16) & 1)) >> 16);
  }

  // Rounds by way of an f32 whose last bit says that the value was not exact,
  // so that the two roundings give the result of one.
  static constexpr uint16_t Nearest(double value) {
    const float near = static_cast<float>(value);
    if (near == value || value != value) return Nearest(near);
    uint32_t u = std::bit_cast<uint32_t>(near);
    const bool away_from_zero = (near > value) == (value > 0);
    if (away_from_zero) --u;
    return Nearest(std::bit_cast<float>(u | 1));
  }

  template <typename Number>
  static constexpr uint16_t Nearest(Number value) {
    return Nearest(static_cast<double>(value));
  }
};
static_assert(sizeof(BFloat16) == 2 && std::is_trivial_v<BFloat16>);

// The type of computation and sums for tensors of T, and so of statistics and
// of gradients of parameters.
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, BFloat16>, float, T>;

}  // namespace delink

// NOLINTBEGIN(readability-identifier-naming): the library's names
template <>
struct std::numeric_limits<delink::BFloat16> {
  static constexpr bool is_specialized = true;
  static constexpr bool is_signed = true;
  static constexpr bool has_infinity = true;
  static constexpr bool has_quiet_NaN = true;
  static constexpr int digits = 8;
  static constexpr delink::BFloat16 epsilon() {
    return delink::BFloat16::FromBits(0x3C00);  // 2^-7
  }
  static constexpr delink::BFloat16 min() {
    return delink::BFloat16::FromBits(0x0080);
  }
  static constexpr delink::BFloat16 max() {
    return delink::BFloat16::FromBits(0x7F7F);
  }
  static constexpr delink::BFloat16 lowest() {
    return delink::BFloat16::FromBits(0xFF7F);
  }
  static constexpr delink::BFloat16 infinity() {
    return delink::BFloat16::FromBits(0x7F80);
  }
  static constexpr delink::BFloat16 quiet_NaN() {
    return delink::BFloat16::FromBits(0x7FC0);
  }
};
// NOLINTEND(readability-identifier-naming)
