#include "framework/tensor/bfloat16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace delink::bfloat16_test {
namespace {

constexpr uint32_t kPatterns = 1 << 16;

BFloat16 Pattern(uint32_t bits) {
  return BFloat16::FromBits(static_cast<uint16_t>(bits));
}

bool IsNan(uint32_t bits) { return (bits & 0x7FFF) > 0x7F80; }

// Every pattern is the upper half of an f32, and comes back from both types.
TEST(BFloat16, EveryPatternGoesToFloatAndBack) {
  for (uint32_t bits = 0; bits < kPatterns; ++bits) {
    const float value = Pattern(bits);
    ASSERT_EQ(std::bit_cast<uint32_t>(value), bits << 16);
    // A signalling not-a-number comes back quiet.
    const uint32_t expected = IsNan(bits) ? bits | 0x40 : bits;
    ASSERT_EQ(BFloat16(value).bits, expected);
    ASSERT_EQ(BFloat16(static_cast<double>(value)).bits, expected);
  }
}

// Between two neighbours: the middle goes to the even one, what is beside the
// middle, be it by one bit of the source, to the nearer one. 0x7F80, infinity,
// counts as the neighbour of the largest number.
TEST(BFloat16, RoundsToTheNearestAndTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7F80; ++bits) {
    for (const uint32_t sign : {0u, 0x8000u}) {
      const uint32_t low = bits | sign, high = low + 1;
      const uint32_t even = low % 2 == 0 ? low : high;
      const uint32_t middle = (low << 16) | 0x8000;
      const auto as_float = [](uint32_t u) { return std::bit_cast<float>(u); };
      ASSERT_EQ(BFloat16(as_float(middle)).bits, even);
      ASSERT_EQ(BFloat16(as_float(middle - 1)).bits, low);
      ASSERT_EQ(BFloat16(as_float(middle + 1)).bits, high);
      const double exact = as_float(middle);
      const double above = std::nextafter(exact, 2 * exact);
      const double below = std::nextafter(exact, 0.0);
      ASSERT_EQ(BFloat16(exact).bits, even);
      // One rounding: by way of the nearest f32 these would be ties.
      ASSERT_EQ(BFloat16(below).bits, low);
      ASSERT_EQ(BFloat16(above).bits, high);
    }
  }
}

TEST(BFloat16, OverflowsToInfinity) {
  for (const double sign : {1.0, -1.0}) {
    const double infinity = sign * std::numeric_limits<double>::infinity();
    for (const double value : {infinity, sign * 1e300,
                               sign * double{std::numeric_limits<float>::max()},
                               sign * 3.4e38 * 1.001}) {
      EXPECT_EQ(BFloat16(value), infinity) << value;
    }
    EXPECT_EQ(BFloat16(static_cast<float>(infinity)), infinity);
  }
  const double largest = std::numeric_limits<BFloat16>::max();
  EXPECT_EQ(BFloat16(largest * (1 + 0.9 / 512)), largest);
  EXPECT_EQ(largest, 0x1.FEp127);
}

// Also one whose mark is in the lower half alone, which cutting off would turn
// into infinity.
TEST(BFloat16, NotANumberStaysThat) {
  for (const uint32_t u : {0x7F800001u, 0xFF800001u, 0x7FC00000u, 0x7FFFFFFFu,
                           0xFFFFFFFFu, 0x7F80FFFFu}) {
    EXPECT_TRUE(std::isnan(float{BFloat16(std::bit_cast<float>(u))})) << u;
  }
  EXPECT_TRUE(std::isnan(float{BFloat16(std::nan(""))}));
  EXPECT_TRUE(std::isnan(float{std::numeric_limits<BFloat16>::quiet_NaN()}));
}

TEST(BFloat16, TinyDoublesVanishWithTheirSign) {
  EXPECT_EQ(BFloat16(1e-300).bits, 0x0000);
  EXPECT_EQ(BFloat16(-1e-300).bits, 0x8000);
  EXPECT_EQ(BFloat16(0x1p-133).bits, 0x0001);  // the smallest number
  EXPECT_EQ(BFloat16(0x1p-134).bits, 0x0000);  // a tie
  EXPECT_EQ(BFloat16(0x1.8p-134).bits, 0x0001);
}

TEST(BFloat16, ArithmeticIsThatOfFloat) {
  const BFloat16 a(1.5F), b(2.25F);
  static_assert(std::is_same_v<decltype(a + b), float>);
  static_assert(std::is_same_v<decltype(double{a} * b), double>);
  EXPECT_EQ(a * b, 3.375F);
  EXPECT_EQ(BFloat16(7), 7.0F);
  EXPECT_EQ(BFloat16{}.bits, 0);
  static_assert(std::is_same_v<Wide<BFloat16>, float>);
  static_assert(std::is_same_v<Wide<float>, float>);
  static_assert(std::is_same_v<Wide<double>, double>);
}

}  // namespace
}  // namespace delink::bfloat16_test
