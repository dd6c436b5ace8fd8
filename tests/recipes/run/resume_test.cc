// What a run goes on from, and what it refuses to. That it is then the same run
// is in whole_run_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "framework/base/file.h"
#include "framework/base/log.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::resume_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kSteps = 20;
constexpr int64_t kSwitch = 10;  // recipes/tiny.toml

class ResumeTest : public ::testing::Test {
 protected:
  TinyRuns runs_;
};

TEST_F(ResumeTest, TheCheckpointAtTheSwitchIsTheOneBeforeDelinking) {
  runs_.Go({.out = "run"});
  const Tensors at_switch = runs_.Load("run", kSwitch);
  EXPECT_EQ(at_switch.at("/model/blocks/0/attn/qkv/weight"),
            at_switch.at("/model/blocks/3/attn/qkv/weight"));
  const Tensors end = runs_.Load("run", kSteps);
  EXPECT_NE(end.at("/model/blocks/0/attn/qkv/weight"),
            end.at("/model/blocks/3/attn/qkv/weight"));
}

TEST_F(ResumeTest, ADamagedCheckpointIsPassedOver) {
  runs_.Go({.out = "straight"});
  runs_.Go({.out = "run", .until_step = 15});
  const std::string file = runs_.Checkpoint("run", 15) + "/rank-00000.h5";
  {
    std::fstream damage(file, std::ios::in | std::ios::out | std::ios::binary);
    damage.seekp(
        static_cast<std::streamoff>(std::filesystem::file_size(file) / 2));
    const char flipped = static_cast<char>(damage.peek() ^ 1);
    damage.put(flipped);
  }
  runs_.Go({.out = "run", .resume = true});
  EXPECT_EQ(FirstDifference(runs_.Load("straight", kSteps),
                            runs_.Load("run", kSteps)),
            "");
}

TEST_F(ResumeTest, FromAnEarlierStepTheLaterOnesAreSetAside) {
  runs_.Go({.out = "run"});
  const std::vector<Step> straight = runs_.Steps("run");
  // Again from before the switch, which is then made anew, and not to the end.
  runs_.Go({.out = "run",
            .until_step = 13,
            .resume = true,
            .resume_from = runs_.Checkpoint("run", 10)});
  EXPECT_EQ(runs_.Switches("run").size(), 1);
  EXPECT_FALSE(std::filesystem::exists(runs_.Checkpoint("run", 15)));
  EXPECT_TRUE(std::filesystem::exists(runs_.Checkpoint("run", 20) + ".left"));
  // The newest of this course is found, not step 20.
  runs_.Go({.out = "run", .resume = true});
  EXPECT_EQ(LossDifference(straight, runs_.Steps("run")), 0);
}

// Steps after the checkpoint go by the recipe that is given now, and each key
// that it has otherwise is told.
TEST_F(ResumeTest, ARecipeThatHasChangedIsFollowedAndTold) {
  runs_.Go({.out = "run", .until_step = 10});
  SetLogLevel(LogLevel::kInfo);
  runs_.Go({.sets = {"optimizer.lr=5e-4", "optimizer.decay=0.2"},
            .out = "run",
            .until_step = 13,
            .resume = true});
  SetLogLevel(LogLevel::kError);
  const absl::StatusOr<std::string> log =
      ReadFile(runs_.Folder("run") + "/log.txt");
  ASSERT_TRUE(log.ok());
  EXPECT_THAT(
      *log,
      AllOf(HasSubstr("optimizer.lr was 0.001, is 5e-04 from step 11 on\n"
                      "optimizer.decay was 0.1, is 0.2 from step 11 on\n"),
            Not(HasSubstr("model."))));
  runs_.Go({.sets = {"optimizer.lr=5e-4"}, .out = "straight"});
  for (const int step : {11, 12, 13}) {
    EXPECT_EQ(runs_.Steps("run")[step - 1].lr,
              runs_.Steps("straight")[step - 1].lr);
    EXPECT_NE(runs_.Steps("run")[step - 1].loss,
              runs_.Steps("straight")[step - 1].loss);
  }
}

TEST_F(ResumeTest, NothingToResumeStartsAfresh) {
  runs_.Go({.out = "straight"});
  runs_.Go({.out = "run", .resume = true});
  EXPECT_EQ(FirstDifference(runs_.Load("straight", kSteps),
                            runs_.Load("run", kSteps)),
            "");
}

TEST_F(ResumeTest, AnotherVocabularyIsRefused) {
  runs_.Go({.out = "run", .until_step = 5});
  const absl::Status status =
      runs_.Run({.sets = {"model.vocab=300"}, .out = "run", .resume = true});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("vocabulary of 257"), HasSubstr("300")));
}

// Of a stage that is over nobody wants ranks any more.
TEST_F(ResumeTest, RanksSuitTheStagesToCome) {
  const std::vector<std::string> sets = {"stage.0.parallel.tensor=2",
                                         "stage.1.parallel.tensor=1"};
  runs_.Go({.ranks = 2, .sets = sets, .out = "run", .until_step = 5});
  const absl::Status early =
      runs_.Run({.sets = sets, .out = "run", .resume = true});
  EXPECT_EQ(early.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(early.message()),
              HasSubstr("tensor 2 is 2 ranks or a multiple"));
  runs_.Go({.ranks = 2,
            .sets = sets,
            .out = "run",
            .until_step = 12,
            .resume = true});
  runs_.Go({.sets = sets, .out = "run", .until_step = 15, .resume = true});
  runs_.Go({.sets = sets, .out = "run", .resume = true});
  EXPECT_EQ(runs_.Steps("run").size(), kSteps);
}

TEST_F(ResumeTest, RanksThatReadDifferentRecipesAreToldSo) {
  const absl::Status status = runs_.Run(
      {.ranks = 2, .last_rank_sets = {"optimizer.lr=0.5"}, .out = "run"});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("rank 1: this rank has 'lr = 0.5'"));
  EXPECT_FALSE(std::filesystem::exists(runs_.Folder("run")));
}

TEST_F(ResumeTest, ARunIsNotOverwrittenUnasked) {
  runs_.Go({.out = "run", .until_step = 5});
  const absl::Status status = runs_.Run({.out = "run"});
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  runs_.Go({.out = "run", .overwrite = true});
  EXPECT_EQ(runs_.Steps("run").size(), kSteps);
}

}  // namespace
}  // namespace delink::testing::resume_test
