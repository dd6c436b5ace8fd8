// Validations that end a run early, and the checkpoint that validates best:
// wherever a run is stopped, it is the same run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "framework/base/file.h"
#include "framework/base/log.h"
#include "framework/comm/self_communicator.h"
#include "recipes/record/run_folder.h"
#include "recipes/run/position/best_validation.h"
#include "recipes/run/position/saved_run.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::early_end_test {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

TEST(BestValidationTest, OverAfterSoManyThatAreNotBetterByDelta) {
  const StopAfter stop{.validations = 2, .delta = 0.1};
  BestValidation best;
  EXPECT_TRUE(best.saved().empty());
  EXPECT_TRUE(best.Add(1, 3.0, true, stop.delta));
  EXPECT_TRUE(best.Add(2, 2.95, true, stop.delta));  // lower, not by enough
  EXPECT_EQ(best.Over(stop), "");
  EXPECT_FALSE(best.Add(3, 2.96, true, stop.delta));
  EXPECT_NE(best.Over(stop), "");
  EXPECT_EQ(best.step(), 2);
  EXPECT_EQ(best.loss(), 2.95);
  EXPECT_EQ(best.Over({}), "");  // not asked for
  // Through a checkpoint.
  BestValidation again(best.saved());
  EXPECT_EQ(again.saved(), best.saved());
  EXPECT_NE(again.Over(stop), "");
  EXPECT_TRUE(again.Add(4, 2.8, true, stop.delta));
  EXPECT_EQ(again.Over(stop), "");
}

TEST(BestValidationTest, WhatIsNoNumberIsNeverBetter) {
  BestValidation best;
  EXPECT_FALSE(best.Add(1, std::numeric_limits<double>::quiet_NaN(), true, 0));
  EXPECT_FALSE(best.Add(2, std::numeric_limits<double>::infinity(), true, 0));
  EXPECT_NE(best.Over({.validations = 2}), "");
  EXPECT_EQ(best.step(), -1);
  EXPECT_TRUE(best.Add(3, 5, true, 0));
}

TEST(BestValidationTest, CountingAnewKeepsTheLowest) {
  BestValidation best;
  best.Add(1, 2.0, true, 0);
  best.Add(2, 3.0, true, 0);
  best.CountAnew();
  EXPECT_FALSE(best.Add(3, 2.5, true, 0));
  EXPECT_EQ(best.Over({.validations = 1}), "");
  EXPECT_EQ(best.step(), 1);
}

class EarlyEndTest : public ::testing::Test {
 protected:
  EarlyEndTest() {
    // Nothing is learnt, so that nothing gets better: in the last stage, which
    // begins at step 10, at 12 the first, at 14 and 16 no better one.
    runs_.sets = {"optimizer.lr=0", "run.validate_every=2",
                  "run.stop_after.validations=2", "run.keep_best=true",
                  "run.keep=1"};
  }
  // The rows that tell of the end and of validations, without times.
  std::vector<std::string> Told(const std::string& out) const {
    std::ifstream in(RunFolder::Metrics(runs_.Folder(out)));
    std::vector<std::string> told;
    for (std::string line; std::getline(in, line);) {
      nlohmann::json row = nlohmann::json::parse(line);
      row.erase("seconds");
      if (row.contains("validation_loss") ||
          row.value("event", "") == "early_end") {
        told.push_back(row.dump());
      }
    }
    return told;
  }
  std::vector<std::string> Checkpoints(const std::string& out) const {
    return *ListDirectory(RunFolder::Checkpoints(runs_.Folder(out)));
  }
  std::string Best(const std::string& out) const {
    std::error_code error;
    return fs::read_symlink(RunFolder::Checkpoints(runs_.Folder(out)) + "/best",
                            error)
        .string();
  }
  TinyRuns runs_;
};

TEST_F(EarlyEndTest, EndsInTheLastStageAndKeepsTheBest) {
  runs_.Go({.out = "run"});
  EXPECT_EQ(runs_.Steps("run").size(), 16u);
  // The best is the first of equals, older than all that `keep` keeps.
  EXPECT_EQ(Best("run"), "step-00000002");
  EXPECT_THAT(Checkpoints("run"),
              ElementsAre("best", "step-00000002", "step-00000016"));
  EXPECT_NE(Told("run").back().find("early_end"), std::string::npos);
  // What has ended stays so, and says why.
  const std::vector<std::string> told = Told("run");
  runs_.Go({.out = "run", .resume = true});
  EXPECT_EQ(runs_.Steps("run").size(), 16u);
  EXPECT_EQ(Told("run").size(), told.size() + 1);
  EXPECT_EQ(Told("run").back(), told.back());
  // A tool that is given the link means the checkpoint.
  SelfCommunicator self;
  const auto found = FindCheckpoint(
      self, RunFolder::Checkpoints(runs_.Folder("run")) + "/best");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, runs_.Checkpoint("run", 2));
}

TEST_F(EarlyEndTest, StoppedAnywhereEqualsTheStraightRun) {
  for (const int ranks : {1, 2}) {
    const std::string straight = "straight" + std::to_string(ranks);
    runs_.Go({.ranks = ranks, .out = straight});
    for (const int64_t stop : {2, 11, 14, 15}) {
      const std::string out = straight + "-" + std::to_string(stop);
      runs_.Go({.ranks = ranks, .out = out, .until_step = stop});
      // A validation at an odd step that the straight run has not.
      std::vector<std::string> odd;
      runs_.Go({.ranks = ranks, .out = out, .resume = true});
      std::vector<std::string> told = Told(out);
      std::erase_if(told, [&](const std::string& row) {
        return stop % 2 == 1 && row.find("\"step\":" + std::to_string(stop) +
                                         ",") != std::string::npos;
      });
      EXPECT_EQ(told, Told(straight)) << out;
      EXPECT_EQ(Best(out), "step-00000002") << out;
      EXPECT_EQ(FirstDifference(runs_.Load(straight, 16), runs_.Load(out, 16)),
                "")
          << out;
    }
  }
}

TEST_F(EarlyEndTest, FromBeforeTheBestThereIsNone) {
  // A fresh start writes step 2, the best; going on from step 1 it is found
  // again.
  runs_.Go({.sets = {"run.checkpoint_every=1"}, .out = "run", .until_step = 1});
  fs::copy(runs_.Checkpoint("run", 1), runs_.Folder("first"),
           fs::copy_options::recursive);
  runs_.Go({.out = "run", .until_step = 6, .resume = true});
  EXPECT_EQ(Best("run"), "step-00000002");
  runs_.Go({.out = "run",
            .until_step = 1,
            .resume = true,
            .resume_from = runs_.Folder("first")});
  EXPECT_EQ(Best("run"), "");
  runs_.Go({.out = "run",
            .until_step = 3,
            .resume = true,
            .resume_from = runs_.Folder("first")});
  EXPECT_EQ(Best("run"), "step-00000002");
}

TEST_F(EarlyEndTest, OnOtherDataTheBestIsCountedAnew) {
  const auto best = [&](int64_t step) {
    const auto saved = SavedRun::Read(runs_.Checkpoint("run", step));
    EXPECT_TRUE(saved.ok()) << saved.status();
    return BestValidation(saved->validation);
  };
  runs_.Go({.sets = {"data.validation_batches=1000"},
            .out = "run",
            .until_step = 14});
  EXPECT_EQ(best(14).step(), 2);
  // There is no more than that.
  runs_.Go({.sets = {"data.validation_batches=2000"},
            .out = "run",
            .until_step = 15,
            .resume = true});
  EXPECT_EQ(best(15).step(), 2);
  // Nothing is compared with what was found on more.
  SetLogLevel(LogLevel::kWarning);
  ::testing::internal::CaptureStderr();
  runs_.Go(
      {.sets = {"data.validation_batches=1"}, .out = "run", .resume = true});
  EXPECT_NE(::testing::internal::GetCapturedStderr().find(
                "validation data has changed"),
            std::string::npos);
  EXPECT_EQ(best(20).step(), 16);
  EXPECT_EQ(Best("run"), "step-00000016");
  EXPECT_EQ(runs_.Steps("run").size(), 20u);
}

// Whatever lies between: the batch of the stage, the ranks.
TEST_F(EarlyEndTest, ValidationIsOnTheSameSamples) {
  const auto first = [&](const RunRequest& request) {
    const absl::Status status = runs_.Run(request);
    EXPECT_TRUE(status.ok()) << status;
    double loss = 0;
    std::ifstream in(RunFolder::Metrics(runs_.Folder(request.out)));
    for (std::string line; std::getline(in, line);) {
      const nlohmann::json row = nlohmann::json::parse(line);
      if (row.contains("validation_loss")) loss = row["validation_loss"];
    }
    return loss;
  };
  const std::vector<std::string> sets = {"optimizer.lr=0",
                                         "run.validate_every=1"};
  const double loss = first({.sets = sets, .out = "a", .until_step = 1});
  for (const int ranks : {2, 4}) {
    EXPECT_NEAR(first({.ranks = ranks,
                       .sets = sets,
                       .out = "r" + std::to_string(ranks),
                       .until_step = 1}),
                loss, 1e-12);
  }
  std::vector<std::string> larger = sets;
  larger.emplace_back("stage.0.batch=32");  // of 16 validation samples
  EXPECT_NEAR(first({.sets = larger, .out = "b", .until_step = 1}), loss,
              1e-12);
  std::vector<std::string> other = sets;
  other.emplace_back("data.validation_batches=1");
  EXPECT_GT(
      std::abs(first({.sets = other, .out = "c", .until_step = 1}) - loss),
      1e-9);
}

}  // namespace
}  // namespace delink::testing::early_end_test
