#include "framework/base/rng.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <set>

namespace delink::rng_test {
namespace {

using Words = std::array<uint32_t, 4>;

// The vectors of Random123's kat_vectors for philox4x32-10.
TEST(PhiloxTest, MatchesTheKnownAnswers) {
  EXPECT_EQ(Philox({0, 0}, 0, 0),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({0xffffffff, 0xffffffff}, ~uint64_t{0}, ~uint64_t{0}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      Philox({0xa4093822, 0x299f31d0}, 0x85a308d3243f6a88, 0x0370734413198a2e),
      (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Initialisation and data order of every run hang on these: they may never
// change.
TEST(RngKeyTest, NamesAndSeedsKeepTheirStreams) {
  EXPECT_EQ(HashName(""), 14695981039346656037ULL);
  EXPECT_EQ(HashName("a"), 0xaf63dc4c8601ec8cULL);
  EXPECT_EQ(HashName("foobar"), 0x85944171f73967e8ULL);
  const RngKey key = Fold(KeyFromSeed(1), "blocks/0/attn/qkv/weight");
  const RngKey same =
      Fold(KeyFromSeed(1), HashName("blocks/0/attn/qkv/weight"));
  EXPECT_EQ(key.lo, same.lo);
  EXPECT_EQ(key.hi, same.hi);
}

TEST(RngKeyTest, SubStreamsDiffer) {
  std::set<uint64_t> keys;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (uint64_t value = 0; value < 100; ++value) {
      const RngKey key = Fold(KeyFromSeed(seed), value);
      keys.insert(uint64_t{key.hi} << 32 | key.lo);
    }
  }
  EXPECT_EQ(keys.size(), 1000u);
}

TEST(UniformTest, CoversZeroToOneWithoutOne) {
  EXPECT_EQ(Uniform(0), 0.0F);
  EXPECT_EQ(Uniform(0x80000000), 0.5F);
  EXPECT_LT(Uniform(0xffffffff), 1.0F);
  EXPECT_EQ(Uniform(0xffffffff), 1.0F - 0x1p-24F);
}

TEST(NormalTest, HasTheMomentsOfAStandardNormal) {
  constexpr int kCount = 200'000;
  const RngKey key = KeyFromSeed(7);
  double sum = 0, squares = 0, fourths = 0, neighbours = 0, last = 0;
  int beyond_two = 0;
  for (int i = 0; i < kCount; ++i) {
    const double x = Normal(key, static_cast<uint64_t>(i));
    ASSERT_TRUE(std::isfinite(x)) << i;
    sum += x;
    squares += x * x;
    fourths += x * x * x * x;
    neighbours += x * last;
    beyond_two += std::abs(x) > 2 ? 1 : 0;
    last = x;
  }
  // Five standard deviations of each estimate.
  const double unit = 5 / std::sqrt(kCount);
  EXPECT_NEAR(sum / kCount, 0, unit);
  EXPECT_NEAR(squares / kCount, 1, unit * std::sqrt(2.0));
  EXPECT_NEAR(fourths / kCount, 3, unit * std::sqrt(96.0));
  EXPECT_NEAR(neighbours / kCount, 0, unit);
  const double p = std::erfc(std::sqrt(2.0));
  EXPECT_NEAR(beyond_two / double{kCount}, p, unit * std::sqrt(p * (1 - p)));
}

TEST(NormalTest, DependsOnKeyAndIndexAlone) {
  const RngKey key = KeyFromSeed(3);
  const double fifth = Normal(key, 5);
  Normal(key, 4);
  EXPECT_EQ(Normal(key, 5), fifth);
  EXPECT_NE(Normal(key, 4), fifth);
  EXPECT_NE(Normal(KeyFromSeed(4), 5), fifth);
}

}  // namespace
}  // namespace delink::rng_test
