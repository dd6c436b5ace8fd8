// The status line: what matters most stays when there is little room.
#include "recipes/record/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "recipes/record/run_event.h"

namespace delink::progress_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kWhole[] =
    "step 120/488  loss 4.3210  3 min 05 s left  12.3 k tokens/s  pseudo  45% "
    "of peak  lr 0.001  grad norm 0.52  1.5 GiB";

StepDone Step() {
  return {.at = {.step = 120, .stage = "pseudo"},
          .steps = 488,
          .loss = 4.321,
          .lr = 1e-3,
          .grad_norm = 0.52,
          .speed = {.mean_seconds = 185.0 / 368,
                    .mean_tokens_per_s = 12345,
                    .mean_peak_fraction = 0.45},
          .memory = int64_t{3} << 29};
}

TEST(Progress, WhatHasNoRoomIsLeftOutFromTheEnd) {
  EXPECT_EQ(Format(Step()), kWhole);
  for (int width = 0; width < 130; ++width) {
    const std::string text = Format(Step(), width);
    EXPECT_LE(text.size(), width);
    EXPECT_THAT(kWhole, StartsWith(text));
  }
  EXPECT_EQ(Format(Step(), 24), "step 120/488");
  EXPECT_EQ(Format(Step(), 25), "step 120/488  loss 4.3210");
  EXPECT_EQ(Format(Step(), 5), "step ");
}

TEST(Progress, NoShareOfThePeakAboveAll) {
  StepDone step = Step();
  step.speed.mean_peak_fraction = 1.39;
  EXPECT_THAT(Format(step), HasSubstr("pseudo  over 100% of peak  lr"));
  step.speed.mean_peak_fraction = 0;
  EXPECT_THAT(Format(step), HasSubstr("pseudo  lr"));
}

TEST(Progress, CountsHaveThreeDigitsAndAUnit) {
  EXPECT_EQ(FormatCount(999.4), "999");
  EXPECT_EQ(FormatCount(999.6), "1.00 k");
  EXPECT_EQ(FormatCount(8.4e22), "84.0 Z");
  EXPECT_EQ(FormatFlops(200), "200 FLOP");
  EXPECT_EQ(FormatFlops(999.6), "1.00 kFLOP");
  EXPECT_EQ(FormatFlops(1.2e9), "1.20 GFLOP");
}

TEST(Progress, ABarWhereThereIsRoom) {
  EXPECT_EQ(FormatLive(Step(), 79),
            "[##........]  24%  step 120/488  loss 4.3210  3 min 05 s left  "
            "12.3 k tokens/s");
  EXPECT_EQ(FormatLive(Step(), 59), Format(Step(), 59));
  StepDone last = Step();
  last.at.step = last.steps;
  EXPECT_THAT(FormatLive(last, 200), StartsWith("[##########] 100%  step "));
  for (int width = 0; width < 200; ++width) {
    EXPECT_LE(FormatLive(Step(), width).size(), width);
  }
}

}  // namespace
}  // namespace delink::progress_test
