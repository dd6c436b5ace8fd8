#include "framework/base/at.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

namespace delink::at_test {
namespace {

TEST(At, IsTheElementItself) {
  std::vector<int> values = {1, 2, 3};
  At(values, int32_t{2}) = 7;
  EXPECT_EQ(values, (std::vector{1, 2, 7}));
  const std::vector<int>& same = values;
  EXPECT_EQ(&At(same, uint64_t{1}), &values[1]);
  std::vector<bool> bits = {false, false};
  At(bits, int64_t{1}) = true;
  EXPECT_TRUE(bits[1]);
}

TEST(At, TakesEnumerations) {
  enum class Color : uint8_t { kRed, kBlue };
  const std::array<int, 2> values = {5, 6};
  EXPECT_EQ(At(values, Color::kBlue), 6);
}

TEST(At, OutOfRangeIsTheProgrammersMistake) {
  const std::vector<int> values = {1, 2, 3};
  EXPECT_DEATH(At(values, 3), "index 3 of 3");
  EXPECT_DEATH(At(values, -1), "index -1 of 3");
}

}  // namespace
}  // namespace delink::at_test
