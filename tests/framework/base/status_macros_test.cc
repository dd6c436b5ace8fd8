#include "framework/base/status_macros.h"

#include <gtest/gtest.h>

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace delink::status_macros_test {
namespace {

absl::StatusOr<std::unique_ptr<int>> Box(int value) {
  if (value < 0) return absl::InvalidArgumentError("negative");
  return std::make_unique<int>(value);
}

absl::Status CountUp(absl::Status first, int* reached) {
  ++*reached;
  DELINK_RETURN_IF_ERROR(first);
  ++*reached;
  return absl::OkStatus();
}

absl::StatusOr<int> Add(int a, int b) {
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<int> x, Box(a));
  DELINK_ASSIGN_OR_RETURN(std::unique_ptr<int> y, Box(b));
  int total = 0;
  DELINK_ASSIGN_OR_RETURN(total, absl::StatusOr<int>(*x + *y));
  return total;
}

TEST(ReturnIfErrorTest, GoesOnWhenAllIsWell) {
  int reached = 0;
  EXPECT_TRUE(CountUp(absl::OkStatus(), &reached).ok());
  EXPECT_EQ(reached, 2);
}

TEST(ReturnIfErrorTest, HandsTheErrorUp) {
  int reached = 0;
  EXPECT_EQ(CountUp(absl::DataLossError("flipped"), &reached),
            absl::DataLossError("flipped"));
  EXPECT_EQ(reached, 1);
}

TEST(AssignOrReturnTest, TakesValuesOutAlsoThoseThatOnlyMove) {
  EXPECT_EQ(Add(2, 3).value(), 5);
}

TEST(AssignOrReturnTest, HandsTheFirstErrorUp) {
  EXPECT_EQ(Add(-1, 3).status(), absl::InvalidArgumentError("negative"));
  EXPECT_EQ(Add(1, -3).status(), absl::InvalidArgumentError("negative"));
}

}  // namespace
}  // namespace delink::status_macros_test
