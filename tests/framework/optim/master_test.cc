#include "framework/tensor/master.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "framework/tensor/bfloat16.h"

namespace delink::master_test {
namespace {

float FromBits(uint32_t bits) { return std::bit_cast<float>(bits); }
uint32_t ToBits(float x) { return std::bit_cast<uint32_t>(x); }

// Every bf16 with what decides about rounding behind it, ties among that.
template <typename Body>
void ForRoundings(Body body) {
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const uint32_t lower :
         {0, 1, 0x4000, 0x7FFF, 0x8000, 0x8001, 0xFFFF}) {
      body(upper << 16 | lower);
    }
  }
}

TEST(SplitMaster, IsExact) {
  ForRoundings([](uint32_t bits) {
    const float master = FromBits(bits);
    const SplitMaster split = SplitMaster::Of(master);
    if (std::isnan(master)) {
      EXPECT_TRUE(std::isnan(split.Value())) << bits;
      EXPECT_TRUE(std::isnan(float{BFloat16::FromBits(split.weight)})) << bits;
    } else {
      ASSERT_EQ(ToBits(split.Value()), bits);
    }
  });
}

TEST(SplitMaster, IsExactForEachLowerHalf) {
  for (const uint32_t upper : {0x0000, 0x0001, 0x007F, 0x0080, 0x3F80, 0x3FFF,
                               0x7F7F, 0xBF81, 0xFF7F}) {
    for (uint32_t lower = 0; lower < 0x10000; ++lower) {
      const uint32_t bits = upper << 16 | lower;
      ASSERT_EQ(ToBits(SplitMaster::Of(FromBits(bits)).Value()), bits);
    }
  }
}

TEST(SplitMaster, WeightIsTheNearestWithTiesAway) {
  ForRoundings([](uint32_t bits) {
    const float master = FromBits(bits);
    if (std::isnan(master)) return;
    const uint16_t weight = SplitMaster::Of(master).weight;
    const bool tie = (bits & 0xFFFF) == 0x8000;
    const uint16_t expected =
        tie ? static_cast<uint16_t>((bits >> 16) + 1) : BFloat16(master).bits;
    ASSERT_EQ(weight, expected) << bits;
  });
}

TEST(SplitMaster, WhatIsTooLargeIsAnInfiniteWeightAndAnExactMaster) {
  const float largest = std::numeric_limits<float>::max();
  const SplitMaster split = SplitMaster::Of(-largest);
  EXPECT_EQ(float{BFloat16::FromBits(split.weight)},
            -std::numeric_limits<float>::infinity());
  EXPECT_EQ(split.Value(), -largest);
}

TEST(Stochastic, Bf16StayAsTheyAre) {
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    const float x = FromBits(upper << 16);
    for (const uint16_t random : {0, 1, 0x8000, 0xFFFF}) {
      const uint16_t rounded = RoundStochastically(x, random);
      if (std::isnan(x)) {
        ASSERT_TRUE(std::isnan(float{BFloat16::FromBits(rounded)})) << upper;
      } else {
        ASSERT_EQ(rounded, upper);
      }
    }
  }
}

TEST(Stochastic, TheMeanIsTheNumber) {
  for (const float x : {1.0F, 0x1.000002p0F, 0x1.01p0F, -0x1.03p0F, -3.14159F,
                        0x1.fffffep-1F, 1e-40F, 0x1.fep127F}) {
    double sum = 0;
    float smallest = x, largest = x;
    for (uint32_t random = 0; random < 0x10000; ++random) {
      const float rounded = BFloat16::FromBits(
          RoundStochastically(x, static_cast<uint16_t>(random)));
      sum += rounded;
      smallest = std::min(smallest, rounded);
      largest = std::max(largest, rounded);
    }
    EXPECT_EQ(sum / 0x10000, x) << x;
    EXPECT_TRUE(smallest == largest ||
                std::max(ToBits(smallest), ToBits(largest)) -
                        std::min(ToBits(smallest), ToBits(largest)) ==
                    0x10000)
        << "not between neighbours: " << x;
  }
}

TEST(Stochastic, NotANumberStaysThat) {
  for (const uint32_t bits : {0x7F800001U, 0x7FFFFFFFU, 0xFF80FFFFU}) {
    for (const uint16_t random : {0, 0xFFFF}) {
      EXPECT_TRUE(std::isnan(float{
          BFloat16::FromBits(RoundStochastically(FromBits(bits), random))}));
    }
  }
}

}  // namespace
}  // namespace delink::master_test
