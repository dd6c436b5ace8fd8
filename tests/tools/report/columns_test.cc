#include "tools/report/columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace delink::report::columns_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

TEST(Columns, WhatARowLacksIsNaN) {
  Columns table;
  table.AddRow({{"a", 1}});
  table.AddRow({{"b", 2}});
  table.Set("a", 3);
  table.AddRow({});
  ASSERT_THAT(table.all(), SizeIs(2));
  EXPECT_EQ(table.rows(), 3u);
  const std::vector<double>& a = table.Values("a");
  const std::vector<double>& b = table.Values("b");
  EXPECT_EQ(a[0], 1);
  EXPECT_EQ(a[1], 3);
  EXPECT_TRUE(std::isnan(a[2]));
  EXPECT_TRUE(std::isnan(b[0]));
  EXPECT_EQ(b[1], 2);
  EXPECT_TRUE(std::isnan(b[2]));
  EXPECT_THAT(table.Values("c"), IsEmpty());
}

// A wave with one spike up and one down, and a ramp.
Columns Wave(size_t rows) {
  Columns table;
  for (size_t i = 0; i < rows; ++i) {
    const auto t = static_cast<double>(i);
    double wave = std::sin(t / 700);
    if (i == 12345) wave = 50;
    if (i == 54321) wave = -50;
    table.AddRow({{"wave", wave}, {"ramp", t}});
  }
  return table;
}

TEST(ThinRows, FewRowsStay) {
  EXPECT_THAT(ThinRows(Wave(4), {"wave"}, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(ThinRows(Columns(), {"wave"}, 4), IsEmpty());
}

TEST(ThinRows, KeepsWhatAnEyeWouldMiss) {
  const Columns table = Wave(100000);
  const std::vector<size_t> rows = ThinRows(table, {"wave", "ramp"}, 1000);
  EXPECT_LE(rows.size(), 1002u);
  EXPECT_GT(rows.size(), 400u);
  EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end()));
  EXPECT_EQ(std::adjacent_find(rows.begin(), rows.end()), rows.end());
  for (const size_t row : {0, 12345, 54321, 99999}) {
    EXPECT_TRUE(std::binary_search(rows.begin(), rows.end(), row)) << row;
  }
}

TEST(ThinRows, ColumnsThatAreNotThereOrEmptyDoNoHarm) {
  Columns table;
  for (int i = 0; i < 100; ++i) table.AddRow({{"none", kNone}});
  EXPECT_THAT(ThinRows(table, {"none", "absent"}, 10), ElementsAre(0, 99));
}

TEST(Columns, NumbersOfOneLeaveOutWhatIsNotThere) {
  const std::vector<double> values = {kNone, 4, 1, kNone, 9, kNone, 2};
  EXPECT_EQ(Last(values), 2);
  EXPECT_EQ(Least(values), 1);
  EXPECT_EQ(Largest(values), 9);
  EXPECT_EQ(Median(values), 4);
  EXPECT_EQ(MeanOfLast(values, 5, 3), 5);    // 1, none, 9
  EXPECT_EQ(MeanOfLast(values, 99, 99), 4);  // all
  for (const std::vector<double>& none :
       {std::vector<double>(), std::vector<double>{kNone}}) {
    EXPECT_TRUE(std::isnan(Last(none)));
    EXPECT_TRUE(std::isnan(Least(none)));
    EXPECT_TRUE(std::isnan(Largest(none)));
    EXPECT_TRUE(std::isnan(Median(none)));
    EXPECT_TRUE(std::isnan(MeanOfLast(none, 1, 1)));
  }
}

TEST(MeansBetween, CoverEveryRowOnce) {
  EXPECT_THAT(MeansBetween({1, 3, 5, 7, kNone, 9}, {0, 2, 3, 5}),
              ElementsAre(1, 4, 7, 9));
  const std::vector<double> means = MeansBetween({kNone, 2}, {0, 1});
  EXPECT_TRUE(std::isnan(means[0]));
  EXPECT_EQ(means[1], 2);
}

}  // namespace
}  // namespace delink::report::columns_test
