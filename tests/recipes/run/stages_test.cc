// Runs of several stages: each with its own batch and layout, ended by the
// recipe or by what is measured.
#include <gtest/gtest.h>

#include "framework/base/file.h"
#include "framework/base/log.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::stages_test {
namespace {

class StagesTest : public ::testing::Test {
 protected:
  explicit StagesTest(const std::string& recipe = "tiny_growth")
      : runs_(recipe) {}
  std::vector<int64_t> SwitchSteps(const std::string& out) const {
    std::vector<int64_t> steps;
    for (const Switch& s : runs_.Switches(out)) steps.push_back(s.step);
    return steps;
  }
  TinyRuns runs_;
};

using Steps = std::vector<int64_t>;

TEST_F(StagesTest, ThreeSwitchesKeepTheLossToTheBit) {
  runs_.Go({.out = "run"});
  const std::vector<Switch> switches = runs_.Switches("run");
  EXPECT_EQ(SwitchSteps("run"), (Steps{5, 10, 15}));
  for (const Switch& s : switches) EXPECT_EQ(s.loss_before, s.loss_after);
  // Twice the batch in the first stage.
  const std::vector<Step> steps = runs_.Steps("run");
  ASSERT_EQ(steps.size(), 20);
  EXPECT_EQ(steps[4].tokens, 5 * 16 * 32);
  EXPECT_EQ(steps[19].tokens, (5 * 16 + 15 * 8) * 32);
  EXPECT_NEAR(steps[3].lr, 0.5e-3, 1e-9);
  EXPECT_NEAR(steps[8].lr, 0.7e-3, 1e-9);
}

TEST_F(StagesTest, StoppedAndResumedAnywhereEqualsTheStraightRun) {
  // Between any two switches, and exactly at each.
  const std::vector<int64_t> stops[] = {{3, 5, 8, 10, 12, 15, 17}, {5, 12}};
  for (const int ranks : {1, 2}) {
    const std::string straight = "straight" + std::to_string(ranks);
    runs_.Go({.ranks = ranks, .out = straight});
    for (const int64_t stop : stops[ranks - 1]) {
      const std::string out = straight + "-" + std::to_string(stop);
      runs_.Go({.ranks = ranks, .out = out, .until_step = stop});
      runs_.Go({.ranks = ranks, .out = out, .resume = true});
      EXPECT_EQ(SwitchSteps(out), (Steps{5, 10, 15})) << out;
      EXPECT_EQ(LossDifference(runs_.Steps(straight), runs_.Steps(out)), 0);
      EXPECT_EQ(FirstDifference(runs_.Load(straight, 20), runs_.Load(out, 20)),
                "")
          << out;
    }
  }
  EXPECT_LT(LossDifference(runs_.Steps("straight1"), runs_.Steps("straight2")),
            2e-5);
}

// The fall of the straight line through the last `window` losses, by sums.
double Fall(const std::vector<Step>& steps, size_t end, size_t window) {
  double st = 0, sl = 0, stt = 0, stl = 0;
  for (size_t i = 0; i < window; ++i) {
    const double t = static_cast<double>(i);
    const double loss = steps[end - window + i].loss;
    st += t, sl += loss, stt += t * t, stl += t * loss;
  }
  const double n = static_cast<double>(window);
  return -(n * stl - st * sl) / (n * stt - st * st) * n;
}

class MeasuredTest : public StagesTest {
 protected:
  MeasuredTest() : StagesTest("tiny") {}
};

TEST_F(MeasuredTest, APlateauEndsTheStage) {
  constexpr size_t kWindow = 6;
  const std::vector<std::string> sets = {
      "stage.0.until={plateau=0.27,window=6,steps=35}", "schedule.steps=40",
      "schedule.decay=0", "run.checkpoint_every=0"};
  for (const int ranks : {1, 4}) {
    const std::string out = "run" + std::to_string(ranks);
    std::vector<std::string> all = sets;
    if (ranks == 4) all.push_back("stage.0.parallel.zero=1");
    runs_.Go({.ranks = ranks, .sets = all, .out = out});
    const std::vector<Step> steps = runs_.Steps(out);
    size_t expected = kWindow;
    while (expected < 35 && Fall(steps, expected, kWindow) >= 0.27) ++expected;
    ASSERT_GT(expected, kWindow) << "the test's threshold is no test";
    ASSERT_LT(expected, 35U) << "the test's threshold is no test";
    EXPECT_EQ(SwitchSteps(out), Steps{static_cast<int64_t>(expected)});
  }
  // The losses behind the decision travel in the checkpoint.
  const int64_t step = SwitchSteps("run1").at(0);
  for (const int64_t stop : {step - 2, step}) {
    const std::string out = "stopped" + std::to_string(stop);
    runs_.Go({.sets = sets, .out = out, .until_step = stop});
    runs_.Go({.sets = sets, .out = out, .resume = true});
    EXPECT_EQ(SwitchSteps(out), Steps{step});
    EXPECT_EQ(FirstDifference(runs_.Load("run1", 40), runs_.Load(out, 40)), "");
  }
}

TEST_F(MeasuredTest, DisagreementOfTheGradientsEndsTheStage) {
  // The first full window makes the first decision; with a threshold that
  // nothing exceeds it is taken then, with one that nothing falls to never.
  const auto sets = [](const std::string& threshold) {
    return std::vector<std::string>{
        "stage.0.until={gradient=" + threshold + ",window=12,steps=16}",
        "run.probe_every=2", "run.checkpoint_every=0"};
  };
  for (const int ranks : {1, 4}) {
    const std::string n = std::to_string(ranks);
    runs_.Go({.ranks = ranks, .sets = sets("4.01"), .out = "soon" + n});
    EXPECT_EQ(SwitchSteps("soon" + n), Steps{12});
    runs_.Go({.ranks = ranks, .sets = sets("1e-9"), .out = "never" + n});
    EXPECT_EQ(SwitchSteps("never" + n), Steps{16});
    const std::vector<Probe> probes = runs_.Probes("never" + n);
    ASSERT_EQ(probes.size(), 8);
    for (const Probe& probe : probes) {
      EXPECT_GT(probe.agreement, 0);
      EXPECT_LE(probe.agreement, 4);
      EXPECT_LE(probe.rho, 1);
    }
  }
  // Probing changes nothing of the run.
  runs_.Go({.sets = {"stage.0.until={steps=16}"}, .out = "unprobed"});
  EXPECT_EQ(
      FirstDifference(runs_.Load("never1", 20), runs_.Load("unprobed", 20)),
      "");
  // Nor does stopping between probes.
  runs_.Go({.sets = sets("4.01"), .out = "stopped", .until_step = 5});
  runs_.Go({.sets = sets("4.01"), .out = "stopped", .resume = true});
  EXPECT_EQ(FirstDifference(runs_.Load("soon1", 20), runs_.Load("stopped", 20)),
            "");
}

TEST_F(MeasuredTest, AStageThatIsNeverReachedIsTold) {
  SetLogLevel(LogLevel::kWarning);
  runs_.Go({.sets = {"stage.0.until={plateau=1e-9,window=20}"}, .out = "run"});
  SetLogLevel(LogLevel::kError);
  EXPECT_EQ(SwitchSteps("run"), Steps{});
  const std::string log = *ReadFile(runs_.Folder("run") + "/log.txt");
  EXPECT_NE(log.find("ended in stage pseudo"), std::string::npos) << log;
  EXPECT_NE(log.find("real was not reached"), std::string::npos) << log;
}

}  // namespace
}  // namespace delink::testing::stages_test
