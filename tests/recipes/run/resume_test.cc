// Stop anywhere, resume on the same or another number of ranks: the same run.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/recipes/run/tiny_run.h"

namespace delink::testing {
namespace {

constexpr int64_t kSteps = 20;
constexpr int64_t kSwitch = 10;  // recipes/tiny.toml
constexpr double kLossTolerance = 2e-5;

class ResumeTest : public ::testing::Test {
 protected:
  explicit ResumeTest(const std::string& recipe = "tiny") : runs_(recipe) {}
  void Go(const RunRequest& request) {
    const absl::Status status = runs_.Run(request);
    ASSERT_TRUE(status.ok()) << std::string(status.message());
  }
  TinyRuns runs_;
};

class StoppedRunTest
    : public ResumeTest,
      public ::testing::WithParamInterface<std::tuple<const char*, int64_t>> {
 protected:
  StoppedRunTest() : ResumeTest(std::get<0>(GetParam())) {}
  static int64_t stop() { return std::get<1>(GetParam()); }
};

TEST_P(StoppedRunTest, EqualsTheStraightRun) {
  for (const int ranks : {1, 2}) {
    const std::string n = std::to_string(ranks);
    Go({.ranks = ranks, .out = "straight" + n});
    Go({.ranks = ranks, .out = "stopped" + n, .until_step = stop()});
    ASSERT_EQ(runs_.Steps("stopped" + n).size(), stop());
    Go({.ranks = ranks, .out = "stopped" + n, .resume = true});
    EXPECT_EQ(
        LossDifference(runs_.Steps("straight" + n), runs_.Steps("stopped" + n)),
        0);
    EXPECT_EQ(FirstDifference(runs_.Load("straight" + n, kSteps),
                              runs_.Load("stopped" + n, kSteps)),
              "");
    const std::vector<Switch> switches = runs_.Switches("stopped" + n);
    ASSERT_EQ(switches.size(), 1);
    EXPECT_EQ(switches[0].step, kSwitch);
  }
}

TEST_P(StoppedRunTest, OnAnotherNumberOfRanks) {
  Go({.ranks = 1, .out = "straight"});
  Go({.ranks = 2,
      .sets = {"stage.0.parallel.zero=1", "stage.1.parallel.zero=1"},
      .out = "moved",
      .until_step = stop()});
  Go({.ranks = 4, .out = "moved", .until_step = 15, .resume = true});
  Go({.ranks = 1, .out = "moved", .resume = true});
  EXPECT_LT(LossDifference(runs_.Steps("straight"), runs_.Steps("moved")),
            kLossTolerance);
}

// In the pseudo stage, exactly at the switch, in the real stage.
INSTANTIATE_TEST_SUITE_P(Stops, StoppedRunTest,
                         ::testing::Combine(::testing::ValuesIn(kTinyRecipes),
                                            ::testing::Values(7, 10, 13)));

TEST_F(ResumeTest, TheCheckpointAtTheSwitchIsTheOneBeforeDelinking) {
  Go({.out = "run"});
  const Tensors at_switch = runs_.Load("run", kSwitch);
  EXPECT_EQ(at_switch.at("/model/blocks/0/attn/qkv/weight"),
            at_switch.at("/model/blocks/3/attn/qkv/weight"));
  const Tensors end = runs_.Load("run", kSteps);
  EXPECT_NE(end.at("/model/blocks/0/attn/qkv/weight"),
            end.at("/model/blocks/3/attn/qkv/weight"));
}

TEST_F(ResumeTest, ADamagedCheckpointIsPassedOver) {
  Go({.out = "straight"});
  Go({.out = "run", .until_step = 15});
  const std::string file = runs_.Checkpoint("run", 15) + "/rank-00000.h5";
  {
    std::fstream damage(file, std::ios::in | std::ios::out | std::ios::binary);
    damage.seekp(
        static_cast<std::streamoff>(std::filesystem::file_size(file) / 2));
    const char flipped = static_cast<char>(damage.peek() ^ 1);
    damage.put(flipped);
  }
  Go({.out = "run", .resume = true});
  EXPECT_EQ(FirstDifference(runs_.Load("straight", kSteps),
                            runs_.Load("run", kSteps)),
            "");
}

TEST_F(ResumeTest, FromAnEarlierStepTheLaterOnesAreSetAside) {
  Go({.out = "run"});
  const std::vector<Step> straight = runs_.Steps("run");
  // Again from before the switch, which is then made anew, and not to the end.
  Go({.out = "run",
      .until_step = 13,
      .resume = true,
      .resume_from = runs_.Checkpoint("run", 10)});
  EXPECT_EQ(runs_.Switches("run").size(), 1);
  EXPECT_FALSE(std::filesystem::exists(runs_.Checkpoint("run", 15)));
  EXPECT_TRUE(std::filesystem::exists(runs_.Checkpoint("run", 20) + ".left"));
  // The newest of this course is found, not step 20.
  Go({.out = "run", .resume = true});
  EXPECT_EQ(LossDifference(straight, runs_.Steps("run")), 0);
}

TEST_F(ResumeTest, NothingToResumeStartsAfresh) {
  Go({.out = "straight"});
  Go({.out = "run", .resume = true});
  EXPECT_EQ(FirstDifference(runs_.Load("straight", kSteps),
                            runs_.Load("run", kSteps)),
            "");
}

TEST_F(ResumeTest, AnotherModelIsRefused) {
  Go({.out = "run", .until_step = 5});
  const absl::Status status =
      runs_.Run({.sets = {"model.dim=64"}, .out = "run", .resume = true});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find("model.dim"), std::string::npos);
}

TEST_F(ResumeTest, AnotherVocabularyIsRefused) {
  Go({.out = "run", .until_step = 5});
  const absl::Status status =
      runs_.Run({.sets = {"model.vocab=300"}, .out = "run", .resume = true});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::string message(status.message());
  EXPECT_NE(message.find("vocabulary of 257"), std::string::npos) << message;
  EXPECT_NE(message.find("300"), std::string::npos) << message;
}

TEST_F(ResumeTest, RanksThatReadDifferentRecipesAreToldSo) {
  const absl::Status status = runs_.Run(
      {.ranks = 2, .last_rank_sets = {"optimizer.lr=0.5"}, .out = "run"});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::string message(status.message());
  EXPECT_NE(message.find("rank 1: this rank has 'lr = 0.5'"), std::string::npos)
      << message;
  EXPECT_FALSE(std::filesystem::exists(runs_.Folder("run")));
}

TEST_F(ResumeTest, ARunIsNotOverwrittenUnasked) {
  Go({.out = "run", .until_step = 5});
  const absl::Status status = runs_.Run({.out = "run"});
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  Go({.out = "run", .overwrite = true});
  EXPECT_EQ(runs_.Steps("run").size(), kSteps);
}

}  // namespace
}  // namespace delink::testing
