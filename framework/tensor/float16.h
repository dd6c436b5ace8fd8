// fp16 (IEEE binary16) as storage: code computes in float and rounds once, when
// it stores: to the nearest number, ties to even. Numbers of size 65520 and
// more become infinite; NaN stays NaN.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace delink {

struct Float16 {
  uint16_t bits;

  Float16() = default;
  explicit constexpr Float16(float value) : bits(Nearest(value)) {}

  static constexpr Float16 FromBits(uint16_t bits) {
    Float16 result(0.0F);
    result.bits = bits;
    return result;
  }

  // Exact.
  constexpr operator float() const {  // NOLINT: as float, where it is read
    constexpr uint32_t kExponent = 0x7C00U << 13;
    const uint32_t shifted = (bits & 0x7FFFU) << 13;
    const uint32_t exponent = shifted & kExponent;
    uint32_t u = shifted + ((127U - 15U) << 23);
    if (exponent == kExponent) u += (255U - 31U - (127U - 15U)) << 23;
    // A subnormal has no leading one: subtract the one that was added.
    const float small = std::bit_cast<float>(shifted + (113U << 23)) -
                        std::bit_cast<float>(113U << 23);
    if (exponent == 0) u = std::bit_cast<uint32_t>(small);
    return std::bit_cast<float>(u | (bits & 0x8000U) << 16);
  }

 private:
  static constexpr uint16_t Nearest(float value) {
    const uint32_t all = std::bit_cast<uint32_t>(value);
    const uint32_t u = all & 0x7FFFFFFF;
    // fp16 numbers below 2^-14 are multiples of 2^-24, the unit of f32 from one
    // half on: adding one half rounds correctly.
    const uint32_t small =
        std::bit_cast<uint32_t>(std::bit_cast<float>(u) + 0.5F) - 0x3F000000U;
    uint32_t near = (u + 0xFFF + ((u >> 13) & 1) - ((127U - 15U) << 23)) >> 13;
    if (u < 0x38800000) near = small;
    if (u >= 0x477FF000) near = 0x7C00;
    if (u > 0x7F800000) near = 0x7E00 | ((u >> 13) & 0x3FF);
    return static_cast<uint16_t>(near | all >> 31 << 15);
  }
};
static_assert(sizeof(Float16) == 2 && std::is_trivial_v<Float16>);

}  // namespace delink
