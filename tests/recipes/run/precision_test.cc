// Runs in bf16: what is one run in fp32 is one run here, to the same degree
// (docs/equality.md), and its losses are those of fp32.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/comm/self_communicator.h"
#include "framework/tensor/bfloat16.h"
#include "recipes/models/model_list.h"
#include "recipes/saved/evaluate.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing {
namespace {

constexpr int64_t kSteps = 20;
constexpr int64_t kSwitch = 10;  // recipes/tiny.toml

class Bf16Test : public ::testing::Test {
 protected:
  explicit Bf16Test(const std::string& recipe = "tiny") : runs_(recipe) {}
  void Go(RunRequest request, const std::string& precision = "bf16") {
    request.sets.push_back("run.precision=" + precision);
    const absl::Status status = runs_.Run(request);
    ASSERT_TRUE(status.ok()) << std::string(status.message());
  }
  TinyRuns runs_;
};

class Bf16LayoutTest : public Bf16Test,
                       public ::testing::WithParamInterface<const char*> {
 protected:
  Bf16LayoutTest() : Bf16Test(GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(Recipes, Bf16LayoutTest,
                         ::testing::ValuesIn(kTinyRecipes));

TEST_P(Bf16LayoutTest, ZeroOneAndRecomputeAreBitEqual) {
  Go({.ranks = 2, .sets = {"model.dropout=0.1"}, .out = "whole"});
  Go({.ranks = 2,
      .sets = {"model.dropout=0.1", "stage.0.parallel.zero=1",
               "stage.1.parallel.zero=1"},
      .out = "sharded"});
  Go({.ranks = 2,
      .sets = {"model.dropout=0.1", "run.recompute=block"},
      .out = "recomputed"});
  runs_.ExpectSameBits("whole", "sharded", kSteps);
  runs_.ExpectSameBits("whole", "recomputed", kSteps);
  const std::vector<Switch> switches = runs_.Switches("sharded");
  ASSERT_EQ(switches.size(), 1);
  EXPECT_EQ(switches[0].loss_before, switches[0].loss_after);
}

TEST_P(Bf16LayoutTest, OrderIsBitEqualWithoutSharing) {
  ExpectOrderIsBitEqual(
      runs_, [this](const RunRequest& request) { Go(request); }, kSteps);
}

// Gradients are f32 sums, so layouts differ there as they do in fp32; where
// that moves a master across the middle between two bf16 numbers the weight
// jumps by 2^-8 of its size. Observed differences are a tenth of this.
TEST_P(Bf16LayoutTest, RanksAccumulationAndOrderAreClose) {
  constexpr double kLossTolerance = 5e-4;
  constexpr double kLr = 1e-3;
  Go({.out = "one"});
  Go({.ranks = 4, .out = "ranks"});
  Go({.sets = {"run.micro_batch=8"}, .out = "at_once"});
  Go({.sets = {"run.order=layer"}, .out = "layer"});
  const Tensors one = runs_.Load("one", kSteps);
  for (const std::string other : {"ranks", "at_once", "layer"}) {
    const std::vector<Step> steps = runs_.Steps(other);
    EXPECT_LT(LossDifference(runs_.Steps("one"), steps), kLossTolerance);
    // Before anything has moved, forward is the same to the bit.
    EXPECT_NEAR(steps[0].loss, runs_.Steps("one")[0].loss, 1e-12);
    const Tensors tensors = runs_.Load(other, kSteps);
    EXPECT_LT(WeightDifference(one, tensors, 0.5), 0.05 * kLr) << other;
    EXPECT_LT(WeightDifference(one, tensors, 0.99), 0.5 * kLr) << other;
  }
}

class Bf16ResumeTest : public Bf16Test {};

TEST_F(Bf16ResumeTest, StoppedAnywhereEqualsTheStraightRun) {
  for (const int ranks : {1, 2}) {
    const std::string straight = absl::StrCat("straight", ranks);
    Go({.ranks = ranks, .out = straight});
    // In the pseudo stage, at the switch, in the real stage.
    for (const int64_t stop : {7, 10, 13}) {
      const std::string out = absl::StrCat("stopped", ranks, "at", stop);
      Go({.ranks = ranks, .out = out, .until_step = stop});
      Go({.ranks = ranks, .out = out, .resume = true});
      runs_.ExpectSameBits(straight, out, kSteps);
    }
  }
}

TEST_F(Bf16ResumeTest, OnAnotherNumberOfRanksNothingIsLost) {
  Go({.ranks = 2,
      .sets = {"stage.0.parallel.zero=1", "stage.1.parallel.zero=1"},
      .out = "run",
      .until_step = 7});
  // Going on for no step saves what was loaded.
  const Tensors before = runs_.Load("run", 7);
  Go({.ranks = 4,
      .sets = {"optimizer.lr=1e-35"},
      .out = "run",
      .until_step = 8,
      .resume = true});
  Tensors after = runs_.Load("run", 8);
  for (const auto& [name, values] : before) {
    if (name.rfind("/model", 0) != 0) continue;
    EXPECT_EQ(values, after.at(name)) << name;
  }
}

// The master is what is saved: not one of the weights it rounds to.
TEST_F(Bf16ResumeTest, SavesTheMaster) {
  Go({.out = "run"});
  const Tensors tensors = runs_.Load("run", kSteps);
  int64_t rounded = 0, all = 0;
  for (const float value : tensors.at("/model/blocks/2/mlp/down/weight")) {
    rounded += float{BFloat16(value)} == value ? 1 : 0;
    ++all;
  }
  EXPECT_LT(rounded, all / 100);
}

// A run may go on in the other precision, with the weights and the state that
// it had; and fp32 never notices that bf16 came before.
TEST_F(Bf16ResumeTest, PrecisionMayChange) {
  for (const std::string first : {"fp32", "bf16"}) {
    const std::string second = first == "fp32" ? "bf16" : "fp32";
    Go({.out = first, .until_step = kSwitch}, first);
    Go({.out = first, .resume = true}, second);
    Go({.out = first + "all"}, first);
    EXPECT_EQ(runs_.Steps(first).size(), kSteps);
    const double difference =
        LossDifference(runs_.Steps(first), runs_.Steps(first + "all"));
    EXPECT_GT(difference, 0);
    EXPECT_LT(difference, 0.01);
  }
}

// delink eval computes in fp32 with the master, whatever the run computed in.
TEST_F(Bf16ResumeTest, EvaluationIsInFp32) {
  // Of one micro-batch a step, so that all losses are added up alike.
  Go({.sets = {"data.batch=2"}, .out = "run", .until_step = 5});
  SelfCommunicator comm;
  const auto evaluation = Evaluate({.checkpoint = runs_.Checkpoint("run", 5),
                                    .data = runs_.Folder("corpus/train"),
                                    .batches = 1},
                                   BuiltInModels(), comm);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  const std::vector<std::string> one_step = {
      "data.batch=2", "data.shuffle=false", "stage.0.share=none"};
  double loss[2];
  for (const std::string precision : {"fp32", "bf16"}) {
    Go({.sets = one_step,
        .out = precision,
        .until_step = 1,
        .init = runs_.Checkpoint("run", 5)},
       precision);
    loss[precision == "bf16"] = runs_.Steps(precision).at(0).loss;
  }
  EXPECT_EQ(evaluation->loss, loss[0]);
  EXPECT_NE(evaluation->loss, loss[1]);
  EXPECT_NEAR(evaluation->loss, loss[1], 0.005 * loss[0]);
}

class Bf16StagesTest : public Bf16Test {
 protected:
  Bf16StagesTest() : Bf16Test("tiny_growth") {}
};

TEST_F(Bf16StagesTest, SwitchesKeepTheLossToTheBitAndResume) {
  Go({.out = "run"});
  const std::vector<Switch> switches = runs_.Switches("run");
  ASSERT_EQ(switches.size(), 3);
  for (const Switch& s : switches) EXPECT_EQ(s.loss_before, s.loss_after);
  for (const int64_t stop : {5, 12}) {
    const std::string out = absl::StrCat("stopped", stop);
    Go({.out = out, .until_step = stop});
    Go({.out = out, .resume = true});
    runs_.ExpectSameBits("run", out, kSteps);
  }
}

// Real text, until much of what there is to learn is learnt. Losses lie within
// 0.06 % of each other; the bounds leave room for other processors' roundings.
TEST(Bf16LossTest, StaysBesideFp32) {
  const TinyRuns runs("tiny", *ReadFile(DELINK_SOURCE_DIR "/LICENSE"));
  for (const std::string precision : {"fp32", "bf16"}) {
    const absl::Status status = runs.Run(
        {.sets = {"run.precision=" + precision, "schedule.steps=100",
                  "schedule.warmup=10", "stage.0.until.steps=40",
                  "optimizer.lr=1e-3", "data.batch=32", "run.micro_batch=8",
                  "run.checkpoint_every=0", "run.validate_every=0"},
         .out = precision});
    ASSERT_TRUE(status.ok()) << std::string(status.message());
  }
  const std::vector<Step> fp32 = runs.Steps("fp32"), bf16 = runs.Steps("bf16");
  ASSERT_EQ(fp32.size(), 100);
  EXPECT_LT(fp32.back().loss, 0.6 * fp32.front().loss);
  EXPECT_LT(LossDifference(fp32, bf16), 0.003);
  // No drift to one side: of the last half, the mean.
  double sum = 0;
  for (size_t i = 50; i < 100; ++i) {
    sum += bf16[i].loss / fp32[i].loss - 1;
  }
  EXPECT_LT(std::abs(sum / 50), 0.001);
}

}  // namespace
}  // namespace delink::testing
