#include "framework/optim/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace delink::schedule_test {
namespace {

struct Row {
  int64_t step;
  double rate;
};

void ExpectRates(const Schedule& schedule, const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    EXPECT_NEAR(LearningRate(schedule, row.step), row.rate, 1e-15)
        << "step " << row.step;
  }
}

TEST(ScheduleTest, Wsd) {
  ExpectRates({.kind = Schedule::Kind::kWsd,
               .peak = 0.8,
               .steps = 100,
               .warmup = 4,
               .decay = 10,
               .final_ratio = 0.5},
              {{0, 0.2},
               {1, 0.4},
               {3, 0.8},
               {4, 0.8},
               {89, 0.8},
               {90, 0.76},  // 0.8 (1 - 0.5 * 1/10)
               {94, 0.6},   // 0.8 (1 - 0.5 * 5/10)
               {99, 0.4},
               {100, 0.4},
               {5000, 0.4}});
}

TEST(ScheduleTest, Cosine) {
  const double root = std::sqrt(0.5);
  ExpectRates({.kind = Schedule::Kind::kCosine,
               .peak = 1,
               .steps = 10,
               .warmup = 2,
               .final_ratio = 0.2},
              {{0, 0.5},
               {1, 1},
               {3, 0.2 + 0.4 * (1 + root)},  // a quarter of the way
               {5, 0.6},                     // half
               {7, 0.2 + 0.4 * (1 - root)},
               {9, 0.2},
               {10, 0.2}});
}

TEST(ScheduleTest, Linear) {
  ExpectRates({.kind = Schedule::Kind::kLinear,
               .peak = 1,
               .steps = 10,
               .warmup = 2,
               .final_ratio = 0},
              {{0, 0.5}, {1, 1}, {2, 0.875}, {5, 0.5}, {9, 0}, {12, 0}});
}

TEST(ScheduleTest, Constant) {
  ExpectRates({.kind = Schedule::Kind::kConstant,
               .peak = 2,
               .steps = 10,
               .final_ratio = 0.1},
              {{0, 2}, {5, 2}, {9, 2}, {100, 2}});
}

TEST(ScheduleTest, ReWarmUpAndScaleMultiply) {
  const Schedule constant{
      .kind = Schedule::Kind::kConstant, .peak = 2, .steps = 100};
  const StageRate stage{.scale = 0.5, .begin = 40, .warmup = 4};
  EXPECT_DOUBLE_EQ(LearningRate(constant, stage, 40), 0.25);
  EXPECT_DOUBLE_EQ(LearningRate(constant, stage, 41), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(constant, stage, 43), 1);
  EXPECT_DOUBLE_EQ(LearningRate(constant, stage, 99), 1);
  EXPECT_DOUBLE_EQ(LearningRate(constant, StageRate{}, 7), 2);
}

TEST(ScheduleTest, WarmUpLongerThanTheRun) {
  for (const auto kind : {Schedule::Kind::kWsd, Schedule::Kind::kCosine,
                          Schedule::Kind::kLinear}) {
    const Schedule schedule{
        .kind = kind, .peak = 1, .steps = 5, .warmup = 10, .final_ratio = 0.1};
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 4), 0.5);
  }
}

// No jumps: neighbours differ by no more than the steepest slope there can be.
// After the warm-up nothing rises, and the end is final_ratio exactly.
TEST(ScheduleTest, IsContinuous) {
  for (const auto kind : {Schedule::Kind::kWsd, Schedule::Kind::kCosine,
                          Schedule::Kind::kLinear}) {
    for (const int64_t warmup : {0, 1, 37, 200}) {
      const Schedule s{.kind = kind,
                       .peak = 3,
                       .steps = 1000,
                       .warmup = warmup,
                       .decay = 150,
                       .final_ratio = 0.1};
      const double rise =
          3.0 / static_cast<double>(std::max<int64_t>(warmup, 1));
      const double fall = 3.0 * 0.9 * 1.6 / 150;
      for (int64_t step = 1; step < s.steps; ++step) {
        const double change = LearningRate(s, step) - LearningRate(s, step - 1);
        EXPECT_GE(change, -fall);
        EXPECT_LE(change, step < warmup ? rise * (1 + 1e-12) : 0)
            << "step " << step;
      }
      EXPECT_NEAR(LearningRate(s, s.steps - 1), 0.3, 1e-15);
      EXPECT_GT(LearningRate(s, 0), 0);
    }
  }
}

}  // namespace
}  // namespace delink::schedule_test
