// Steps that are passed over.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "nlohmann/json.hpp"
#include "recipes/models/model_list.h"
#include "recipes/run/position/saved_run.h"
#include "recipes/run/position/skip_watch.h"
#include "recipes/saved/offline_delink.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::skip_test {
namespace {

using ::testing::HasSubstr;

TEST(SkipWatchTest, AThresholdLooksAtTheStepsBeforeTheLast) {
  SkipWatch watch({.outlier = 2, .window = 4}, {});
  for (const double norm : {1.0, 3.0, 1.0, 3.0}) {
    EXPECT_EQ(watch.Threshold(), 0);
    watch.Add(norm);
  }
  EXPECT_EQ(watch.Threshold(), 0);  // the newest is not looked at
  watch.Add(100);
  EXPECT_EQ(watch.Threshold(), 2 + 2 * 1.0);
  watch.Add(1);
  EXPECT_GT(watch.Threshold(), 50);  // 3, 1, 3, 100
  watch.BeginStage();
  EXPECT_EQ(watch.Threshold(), 0);
}

// Of what was skipped the window has the threshold.
TEST(SkipWatchTest, ASpikeRaisesTheThresholdByLittle) {
  SkipWatch watch({.outlier = 2, .window = 4}, {});
  for (const double norm : {1.0, 3.0, 1.0, 3.0, 2.0}) watch.Add(norm);
  const double most = watch.Threshold();
  EXPECT_EQ(most, 4);
  EXPECT_TRUE(*watch.Passes(6, 1e9, true, most));
  watch.Add(2);
  watch.Add(2);
  // 3, 2, 4, 2
  EXPECT_DOUBLE_EQ(watch.Threshold(), 2.75 + 2 * std::sqrt(0.6875));
}

// Norms that stay three times as high are skipped for some steps, not for ever.
TEST(SkipWatchTest, ALastingRiseIsFollowed) {
  SkipWatch watch({.outlier = 4, .window = 50, .most = 50}, {});
  int skipped = 0;
  for (int64_t step = 1; step <= 400; ++step) {
    const double norm = (step <= 100 ? 1.0 : 3.0) *
                        (1 + 0.1 * std::sin(static_cast<double>(step * step)));
    const double most = watch.Threshold();
    if (most == 0 || norm <= most) {
      watch.Add(norm);
    } else {
      EXPECT_GT(step, 100);
      EXPECT_LT(step, 150);
      EXPECT_TRUE(watch.Passes(step, norm, true, most).ok());
      ++skipped;
    }
  }
  EXPECT_GT(skipped, 3);
  EXPECT_LT(skipped, 25);
}

TEST(SkipWatchTest, WhatIsNotFiniteIsNotInTheWindow) {
  SkipWatch watch({.nonfinite = true, .outlier = 2, .window = 4}, {});
  for (const double norm : {1.0, 3.0, 1.0, 3.0, 2.0}) watch.Add(norm);
  const std::vector<double> before = watch.Saved();
  for (const double norm :
       {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    EXPECT_TRUE(*watch.Passes(6, norm, false, watch.Threshold()));
  }
  std::vector<double> after = watch.Saved();
  after[0] = after[1] = 0;
  EXPECT_EQ(after, before);
}

TEST(SkipWatchTest, WhatIsSavedGoesOn) {
  SkipWatch watch({.nonfinite = true, .outlier = 3, .window = 4, .most = 2},
                  {});
  EXPECT_TRUE(watch.Saved().empty());
  for (const double norm : {1.0, 3.0, 1.0, 3.0, 2.0}) watch.Add(norm);
  EXPECT_TRUE(*watch.Passes(6, INFINITY, false, watch.Threshold()));
  SkipWatch again({.nonfinite = true, .outlier = 3, .window = 4, .most = 2},
                  watch.Saved());
  EXPECT_EQ(again.Threshold(), watch.Threshold());
  EXPECT_EQ(again.skipped(), 1);
  EXPECT_TRUE(*again.Passes(7, 9.0, true, 5.0));
  EXPECT_THAT(std::string(again.Passes(8, 9.0, true, 5.0).status().message()),
              HasSubstr("3 steps in a row"));
}

TEST(SkipWatchTest, OneThatIsNotFiniteEndsTheRunUnlessToldOtherwise) {
  SkipWatch watch({.outlier = 3}, {});
  EXPECT_FALSE(*watch.Passes(1, NAN, false, 0));
  EXPECT_EQ(watch.skipped(), 0);
}

constexpr const char* kRate = "optimizer.lr=0.2";

class SkipTest : public ::testing::Test {
 protected:
  // Skips whatever is above the mean, with steps so large that norms go up and
  // down.
  const std::vector<std::string> sets_ = {kRate, "optimizer.skip.outlier=1e-6",
                                          "optimizer.skip.window=4",
                                          "optimizer.skip.most=20"};
  // After one step of this size nothing is finite any more.
  const std::vector<std::string> blown_ = {
      "optimizer.lr=1000", "optimizer.decay=1000", "optimizer.clip=0",
      "schedule.warmup=0", "optimizer.skip.nonfinite=true"};

  // The numbers of steps that a run skipped.
  std::set<int64_t> Skipped(const std::string& out) const {
    std::set<int64_t> steps;
    for (const nlohmann::json& row : runs_.Rows(out)) {
      if (row.contains("skipped")) steps.insert(row["step"].get<int64_t>());
    }
    return steps;
  }
  SavedRun RunOf(const std::string& checkpoint) const {
    const auto saved = SavedRun::Read(checkpoint);
    DELINK_CHECK(saved.ok()) << saved.status().ToString();
    return *saved;
  }
  TinyRuns runs_;
};

TEST_F(SkipTest, OutliersAreSkippedAndTold) {
  runs_.Go({.sets = sets_, .out = "a"});
  runs_.Go({.sets = {kRate}, .out = "plain"});
  std::vector<double> norms;
  int skipped = 0;
  for (const nlohmann::json& row : runs_.Rows("a")) {
    if (!row.contains("grad_norm")) continue;
    if (row["step"] == 11) norms.clear();  // another stage
    const double norm = row["grad_norm"];
    double mean = 0;
    const bool full = norms.size() >= 5;
    for (size_t i = 0; full && i < 4; ++i) {
      mean += norms[norms.size() - 5 + i] / 4;
    }
    const bool outlier = full && norm > mean * (1 + 1e-3);
    const bool normal = !full || norm < mean * (1 - 1e-3);
    if (outlier || normal) {
      EXPECT_EQ(row.contains("skipped"), outlier) << row.dump();
    }
    skipped += row.contains("skipped") ? 1 : 0;
    norms.push_back(row.contains("skipped") ? mean : norm);
  }
  EXPECT_GT(skipped, 0);
  EXPECT_NE(FirstDifference(runs_.Load("a", 20), runs_.Load("plain", 20)), "");
}

TEST_F(SkipTest, RanksAndResumingAreTheSame) {
  runs_.Go({.ranks = 2, .sets = sets_, .out = "through"});
  runs_.Go({.ranks = 2, .sets = sets_, .out = "stopped", .until_step = 8});
  runs_.Go({.ranks = 2, .sets = sets_, .out = "stopped", .resume = true});
  const std::set<int64_t> skipped = Skipped("stopped");
  ASSERT_FALSE(skipped.empty());
  EXPECT_LE(*skipped.begin(), 8) << "nothing was skipped before it stopped";
  EXPECT_GT(*skipped.rbegin(), 8) << "nothing was skipped after it";
  EXPECT_EQ(Skipped("through"), skipped);
  EXPECT_EQ(
      FirstDifference(runs_.Load("through", 20), runs_.Load("stopped", 20)),
      "");
}

TEST_F(SkipTest, TooManyInARowEndTheRun) {
  std::vector<std::string> sets = blown_;
  sets.push_back("optimizer.skip.most=3");
  const absl::Status status = runs_.Run({.sets = sets, .out = "a"});
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("4 steps in a row have been skipped"));
}

TEST_F(SkipTest, WhatEndsAStageDoesNotLookAtSkippedSteps) {
  runs_.Go({.sets = sets_, .out = "a", .until_step = 10});
  ASSERT_FALSE(Skipped("a").empty());
  std::vector<double> losses;
  for (const nlohmann::json& row : runs_.Rows("a")) {
    if (row.contains("loss") && !row.contains("skipped")) {
      losses.push_back(row["loss"]);
    }
  }
  EXPECT_EQ(RunOf(runs_.Checkpoint("a", 10)).stage_losses, losses);
}

TEST_F(SkipTest, ASwitchByHandEmptiesTheWindowToo) {
  runs_.Go({.sets = sets_, .out = "a"});
  const std::string pseudo = runs_.Checkpoint("a", 10);
  const auto report = OfflineDelink(
      {.checkpoint = pseudo, .out = runs_.Folder("cut")}, BuiltInModels());
  ASSERT_TRUE(report.ok()) << report.status();
  const std::vector<double> before = RunOf(pseudo).skipped;
  ASSERT_GT(before.size(), 2U);
  EXPECT_EQ(RunOf(report->to).skipped,
            std::vector<double>(before.begin(), before.begin() + 2));
  ASSERT_TRUE(runs_
                  .Run({.sets = sets_,
                        .out = "b",
                        .resume = true,
                        .resume_from = report->to})
                  .ok());
  EXPECT_EQ(FirstDifference(runs_.Load("a", 20), runs_.Load("b", 20)), "");
}

TEST_F(SkipTest, ProbesAndCalibrationLeaveOutWhatIsNotFinite) {
  std::vector<std::string> sets = blown_;
  sets.insert(sets.end(), {"optimizer.skip.most=100", "run.probe_every=1",
                           "stage.1.state=calibrated"});
  // No batch of the calibration is finite; the steps before it were passed
  // over.
  const absl::Status status = runs_.Run({.sets = sets, .out = "a"});
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("no batch had a finite gradient"));
  const std::set<int64_t> skipped = Skipped("a");
  EXPECT_TRUE(skipped.contains(10));
  for (const Probe& probe : runs_.Probes("a")) {
    EXPECT_FALSE(skipped.contains(probe.step)) << probe.step;
    EXPECT_GT(probe.agreement, 0) << probe.step;
  }
  sets.push_back("optimizer.skip.nonfinite=false");
  EXPECT_THAT(std::string(runs_.Run({.sets = sets, .out = "b"}).message()),
              HasSubstr("is not finite"));
}

}  // namespace
}  // namespace delink::testing::skip_test
