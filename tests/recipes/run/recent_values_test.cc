#include "recipes/run/position/recent_values.h"

#include <gtest/gtest.h>

#include <vector>

namespace delink::recent_values_test {
namespace {

TEST(RecentValuesTest, SpreadsOfAnyStretch) {
  RecentValues values(5);
  for (const double value : {9.0, 1.0, 3.0, 1.0, 3.0, 100.0}) values.Add(value);
  EXPECT_EQ(values.size(), 5U);
  const auto before = values.Of(4, 1);
  EXPECT_EQ(before.mean, 2);
  EXPECT_EQ(before.deviation, 1);
  const auto pair = values.Of(2, 2);
  EXPECT_EQ(pair.mean, 2);
  EXPECT_EQ(pair.deviation, 1);
  const auto last = values.Of(1);
  EXPECT_EQ(last.mean, 100);
  EXPECT_EQ(last.deviation, 0);
  values.Clear();
  EXPECT_EQ(values.size(), 0U);
}

// As after a resume with a smaller window.
TEST(RecentValuesTest, WhatItBeginsWithStaysAsLong) {
  RecentValues values(2, {1, 2, 3, 4});
  EXPECT_EQ(values.size(), 4U);
  values.Add(5);
  EXPECT_EQ(std::vector<double>(values.values().begin(), values.values().end()),
            (std::vector<double>{2, 3, 4, 5}));
}

}  // namespace
}  // namespace delink::recent_values_test
