// The status line: what matters most stays when there is little room.
#include "recipes/record/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace delink {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kWhole[] =
    "step 120/488  loss 4.3210  3 min 05 s left  12.3 k tokens/s  pseudo  45% "
    "of peak  lr 0.001  grad norm 0.52  1.5 GiB";

RunStatus Status() {
  return {.step = 120,
          .steps = 488,
          .loss = 4.321,
          .tokens_per_s = 12345,
          .peak_fraction = 0.45,
          .lr = 1e-3,
          .grad_norm = 0.52,
          .memory = int64_t{3} << 29,
          .seconds_left = 185,
          .stage = "pseudo"};
}

TEST(Progress, WhatHasNoRoomIsLeftOutFromTheEnd) {
  EXPECT_EQ(Format(Status()), kWhole);
  for (int width = 0; width < 130; ++width) {
    const std::string text = Format(Status(), width);
    EXPECT_LE(text.size(), width);
    EXPECT_THAT(kWhole, StartsWith(text));
  }
  EXPECT_EQ(Format(Status(), 24), "step 120/488");
  EXPECT_EQ(Format(Status(), 25), "step 120/488  loss 4.3210");
  EXPECT_EQ(Format(Status(), 5), "step ");
}

TEST(Progress, NoShareOfThePeakAboveAll) {
  RunStatus status = Status();
  status.peak_fraction = 1.39;
  EXPECT_THAT(Format(status), HasSubstr("pseudo  over 100% of peak  lr"));
  status.peak_fraction = 0;
  EXPECT_THAT(Format(status), HasSubstr("pseudo  lr"));
}

TEST(Progress, ABarWhereThereIsRoom) {
  EXPECT_EQ(FormatLive(Status(), 79),
            "[##........]  24%  step 120/488  loss 4.3210  3 min 05 s left  "
            "12.3 k tokens/s");
  EXPECT_EQ(FormatLive(Status(), 59), Format(Status(), 59));
  RunStatus last = Status();
  last.step = last.steps;
  EXPECT_THAT(FormatLive(last, 200), StartsWith("[##########] 100%  step "));
  for (int width = 0; width < 200; ++width) {
    EXPECT_LE(FormatLive(Status(), width).size(), width);
  }
}

}  // namespace
}  // namespace delink
