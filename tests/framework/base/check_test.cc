#include "framework/base/check.h"

#include <gtest/gtest.h>

#include "framework/base/log.h"

namespace delink::check_test {
namespace {

int Touch(int* count) { return ++*count; }

TEST(CheckTest, PassingChecksEvaluateOnceAndStreamNothing) {
  int evaluated = 0;
  int streamed = 0;
  DELINK_CHECK(Touch(&evaluated) == 1) << Touch(&streamed);
  DELINK_CHECK_EQ(Touch(&evaluated), 2) << Touch(&streamed);
  DELINK_CHECK_NE(evaluated, 3);
  DELINK_CHECK_LT(evaluated, 3);
  DELINK_CHECK_LE(evaluated, 2);
  DELINK_CHECK_GT(evaluated, 1);
  DELINK_CHECK_GE(evaluated, 2);
  EXPECT_EQ(evaluated, 2);
  EXPECT_EQ(streamed, 0);
}

TEST(CheckTest, IsOneStatementUnderElse) {
  bool reached = false;
  if (reached)
    DELINK_CHECK(false) << "not reached";
  else
    reached = true;
  EXPECT_TRUE(reached);
}

TEST(CheckDeathTest, SaysWhereWhatAndWhy) {
  const int heads = 5;
  EXPECT_DEATH(DELINK_CHECK(heads == 6) << "in block " << 3,
               "rank 0: .*check_test.cc:[0-9]+: check failed: heads == 6 "
               "in block 3");
}

TEST(CheckDeathTest, PrintsBothValues) {
  const int rows = 5, dim = 7;
  EXPECT_DEATH(DELINK_CHECK_EQ(rows, dim), "rows == dim \\(5 vs 7\\)");
  EXPECT_DEATH(DELINK_CHECK_NE(rows, 5), "rows != 5 \\(5 vs 5\\)");
  EXPECT_DEATH(DELINK_CHECK_LT(dim, rows), "dim < rows \\(7 vs 5\\)");
  EXPECT_DEATH(DELINK_CHECK_LE(dim, rows), "dim <= rows \\(7 vs 5\\)");
  EXPECT_DEATH(DELINK_CHECK_GT(rows, dim), "rows > dim \\(5 vs 7\\)");
  EXPECT_DEATH(DELINK_CHECK_GE(rows, dim), "rows >= dim \\(5 vs 7\\)");
}

TEST(CheckDeathTest, NamesTheRank) {
  EXPECT_DEATH(
      {
        SetLogRank(3);
        DELINK_CHECK(false);
      },
      "rank 3: ");
}

}  // namespace
}  // namespace delink::check_test
