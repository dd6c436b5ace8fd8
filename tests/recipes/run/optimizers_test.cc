// Whole runs with each optimizer: half with shared weights and half without,
// on any layout the same, and the same where a run is stopped and resumed.
#include <gtest/gtest.h>

#include <ostream>

#include "tests/recipes/run/tiny_run.h"

namespace delink::testing {
namespace {

constexpr int64_t kSteps = 20;

struct Kind {
  const char* name;
  std::vector<std::string> sets;
};
std::ostream& operator<<(std::ostream& out, const Kind& kind) {
  return out << kind.name;
}

class OptimizersTest : public ::testing::TestWithParam<Kind> {
 protected:
  void Go(RunRequest request) {
    const std::vector<std::string>& kind = GetParam().sets;
    request.sets.insert(request.sets.begin(), kind.begin(), kind.end());
    const absl::Status status = runs_.Run(request);
    ASSERT_TRUE(status.ok()) << std::string(status.message());
  }
  void ExpectSameBits(const std::string& a, const std::string& b) {
    EXPECT_EQ(LossDifference(runs_.Steps(a), runs_.Steps(b)), 0);
    EXPECT_EQ(FirstDifference(runs_.Load(a, kSteps), runs_.Load(b, kSteps)),
              "");
  }
  TinyRuns runs_{"tiny_llama"};
};
INSTANTIATE_TEST_SUITE_P(
    Kinds, OptimizersTest,
    ::testing::Values(
        Kind{"sgd",
             {"optimizer.kind=sgd", "optimizer.lr=0.1",
              "optimizer.nesterov=true", "optimizer.decay=0.01"}},
        Kind{"sgd_plain",
             {"optimizer.kind=sgd", "optimizer.lr=0.1",
              "optimizer.momentum=0.0"}},
        Kind{"lion", {"optimizer.kind=lion", "optimizer.lr=1e-3"}},
        Kind{"adafactor", {"optimizer.kind=adafactor", "optimizer.lr=3e-2"}},
        Kind{"muon",
             {"optimizer.kind=muon", "optimizer.lr=1e-2",
              "optimizer.adamw_lr=3e-3", "optimizer.clip_value=0.02"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(OptimizersTest, Learns) {
  Go({.out = "a"});
  const std::vector<Step> steps = runs_.Steps("a");
  ASSERT_EQ(steps.size(), kSteps);
  EXPECT_LT(steps.back().loss, steps.front().loss - 0.02);
  // Delinking changes no loss.
  const std::vector<Switch> switches = runs_.Switches("a");
  ASSERT_EQ(switches.size(), 1);
  EXPECT_EQ(switches[0].loss_before, switches[0].loss_after);
}

TEST_P(OptimizersTest, ZeroOneIsBitEqualToZeroNone) {
  for (const std::string precision : {"fp32", "bf16"}) {
    const std::string set = "run.precision=" + precision;
    Go({.ranks = 2, .sets = {set}, .out = "whole" + precision});
    Go({.ranks = 2,
        .sets = {set, "stage.0.parallel.zero=1", "stage.1.parallel.zero=1"},
        .out = "sharded" + precision});
    ExpectSameBits("whole" + precision, "sharded" + precision);
  }
}

TEST_P(OptimizersTest, ResumingIsBitEqual) {
  Go({.out = "through"});
  // In the middle of either stage.
  Go({.out = "stopped", .until_step = 5});
  Go({.out = "stopped", .until_step = 15, .resume = true});
  Go({.out = "stopped", .resume = true});
  EXPECT_EQ(FirstDifference(runs_.Load("through", kSteps),
                            runs_.Load("stopped", kSteps)),
            "");
}

TEST_P(OptimizersTest, PoliciesAndGroupsAreHeard) {
  Go({.out = "scale"});
  const std::string group =
      "optimizer.group=[{match=\"*norm*\", lr_scale=0.0, decay=0.0}]";
  Go({.sets = {"stage.1.state=calibrated", "stage.1.calibration_batches=2",
               group},
      .out = "group"});
  const Tensors scale = runs_.Load("scale", kSteps);
  for (const auto& [name, values] : runs_.Load("group", kSteps)) {
    if (name.rfind("/model/", 0) != 0) continue;
    const bool norm = name.find("norm") != std::string::npos;
    const bool ones = values == std::vector<float>(values.size(), 1.0F);
    EXPECT_EQ(ones, norm) << name;
    if (norm) {
      EXPECT_NE(scale.at(name), values) << name;
    }
  }
}

}  // namespace
}  // namespace delink::testing
