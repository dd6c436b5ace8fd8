#include "framework/tensor/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace delink::float16_test {
namespace {

constexpr uint32_t kInfinity = 0x7C00;

// By the definition of the format, of a pattern without its sign.
double Meaning(uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 10);
  const int fraction = static_cast<int>(bits & 0x3FF);
  if (exponent == 0) return std::ldexp(fraction, -24);
  return std::ldexp(1024 + fraction, exponent - 25);
}

Float16 Pattern(uint32_t bits) {
  return Float16::FromBits(static_cast<uint16_t>(bits));
}

float FloatOf(uint32_t bits) { return std::bit_cast<float>(bits); }

TEST(Float16, EveryNumberGoesToFloatAndBack) {
  for (uint32_t bits = 0; bits < kInfinity; ++bits) {
    for (const uint32_t sign : {0u, 0x8000u}) {
      const float value = Pattern(bits | sign);
      ASSERT_EQ(std::fabs(value), Meaning(bits)) << bits;
      ASSERT_EQ(std::signbit(value), sign != 0) << bits;
      ASSERT_EQ(Float16(value).bits, bits | sign);
    }
  }
}

// The middle of two neighbours goes to the even one, what is beside it, be it
// by one bit of the source, to the nearer one.
TEST(Float16, RoundsToTheNearestAndTiesToEven) {
  for (uint32_t low = 0; low < kInfinity - 1; ++low) {
    const uint32_t high = low + 1;
    const auto middle =
        static_cast<float>((Meaning(low) + Meaning(high)) / 2);  // exact
    for (const float sign : {1.0F, -1.0F}) {
      const uint32_t mark = sign < 0 ? 0x8000 : 0;
      ASSERT_EQ(Float16(sign * middle).bits,
                (low % 2 == 0 ? low : high) | mark);
      ASSERT_EQ(Float16(sign * std::nextafter(middle, 0.0F)).bits, low | mark);
      ASSERT_EQ(Float16(sign * std::nextafter(middle, 1e6F)).bits, high | mark);
    }
  }
}

TEST(Float16, OverflowsToInfinityAndUnderflowsToZero) {
  for (const uint32_t sign : {0u, 0x8000u}) {
    const float one = sign == 0 ? 1 : -1;
    EXPECT_EQ(Float16(one * 65'504).bits, 0x7BFF | sign);
    EXPECT_EQ(Float16(one * std::nextafter(65'520.0F, 0.0F)).bits,
              0x7BFF | sign);
    for (const float large :
         {65'520.0F, 65'536.0F, 1e9F, std::numeric_limits<float>::max(),
          std::numeric_limits<float>::infinity()}) {
      EXPECT_EQ(Float16(one * large).bits, kInfinity | sign) << large;
    }
    for (const float small : {0.0F, std::ldexp(1.0F, -25), 1e-30F,
                              std::numeric_limits<float>::denorm_min()}) {
      EXPECT_EQ(Float16(one * small).bits, sign) << small;
    }
  }
  EXPECT_EQ(float{Pattern(kInfinity)}, std::numeric_limits<float>::infinity());
}

TEST(Float16, NotANumberStaysThat) {
  for (const uint32_t u : {0x7F800001u, 0xFF800001u, 0x7FC00000u, 0x7FFFFFFFu,
                           0xFFFFFFFFu, 0x7F801FFFu}) {
    EXPECT_TRUE(std::isnan(float{Float16(FloatOf(u))})) << u;
  }
  for (uint32_t bits = kInfinity + 1; bits < 0x8000; ++bits) {
    ASSERT_TRUE(std::isnan(float{Pattern(bits)})) << bits;
    // What it carries comes back, quiet.
    ASSERT_EQ(Float16(float{Pattern(bits)}).bits, bits | 0x200);
  }
}

}  // namespace
}  // namespace delink::float16_test
