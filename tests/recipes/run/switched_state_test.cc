// A switch from data ranks to ranks that have the model together, and what it
// makes of optimizer state: what it would make of it where no rank has another
// part afterwards, bit for bit as far as no sum is made anew.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "recipes/run/observers/checkpointer.h"
#include "recipes/run/setup/setup.h"
#include "recipes/run/switch/stage_switch.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::switched_state_test {
namespace {

constexpr int64_t kSwitch = 10;  // recipes/tiny_llama.toml

const char* const kData4 = "stage.1.parallel={data=4}";
const char* const kCut = "stage.1.parallel={tensor=2, pipeline=2, zero=1}";

// Goes over the switch and saves what is then there, after a step that is left
// out.
absl::Status SwitchAlone(RunSetup& run) {
  DELINK_ASSIGN_OR_RETURN(Recorder recorder, Recorder::Create(run));
  DELINK_ASSIGN_OR_RETURN(std::unique_ptr<StageRun> stage,
                          run.beginning().MakeStage(run.env()));
  RunPosition at = run.beginning().Position();
  DELINK_RETURN_IF_ERROR(recorder.Begin(*stage, at));
  at.EnterNextStage();
  DELINK_ASSIGN_OR_RETURN(
      stage, SwitchStage(run, recorder, std::move(stage), at, "a test"));
  at.Advance(std::nullopt);
  return Checkpointer(run, recorder).MaybeSave(*stage, at, true);
}

// Runs over data ranks, more of them than heads of keys and values.
class SwitchedStateTest : public ::testing::Test {
 protected:
  SwitchedStateTest() {
    runs_.sets = {"run.checkpoint_every=0", "run.norms_every=0",
                  "run.micro_batch=1", "stage.1.calibration_batches=2"};
  }
  void Pseudo(int ranks, const std::vector<std::string>& sets) {
    ASSERT_NO_FATAL_FAILURE(runs_.Go({.ranks = ranks,
                                      .sets = sets,
                                      .out = "run",
                                      .until_step = kSwitch,
                                      .overwrite = true}));
  }
  // All that there is after the switch.
  Tensors Switched(int ranks, std::vector<std::string> sets,
                   const std::vector<std::string>& more) {
    sets.insert(sets.end(), more.begin(), more.end());
    runs_.Go({.ranks = ranks,
              .sets = sets,
              .out = "run",
              .resume = true,
              .resume_from = runs_.Checkpoint("run", kSwitch),
              .instead = SwitchAlone});
    if (HasFatalFailure()) return {};
    return runs_.Load("run", kSwitch + 1);
  }
  TinyRuns runs_{"tiny_llama"};
};

TEST_F(SwitchedStateTest, ScaledStateIsThatWithoutAChangeOfLayout) {
  const std::vector<std::string> forms[] = {
      {"optimizer.kind=adamw"},
      {"run.precision=bf16", "run.master=split", "optimizer.moments=bf16"},
      {"optimizer.kind=adafactor"},
      {"optimizer.kind=muon", "stage.0.parallel.zero=1"}};
  for (const std::vector<std::string>& form : forms) {
    SCOPED_TRACE(form.front());
    ASSERT_NO_FATAL_FAILURE(Pseudo(2, form));
    const Tensors before = runs_.Load("run", kSwitch);
    const Tensors expected = Switched(2, form, {});
    ASSERT_FALSE(HasFailure());
    EXPECT_NE(FirstDifference(before, expected), "");
    for (const char* const more :
         {kCut, "stage.1.parallel={tensor=4}",
          "stage.1.parallel={tensor=2, context=2, sequence=false}"}) {
      SCOPED_TRACE(more);
      EXPECT_EQ(FirstDifference(expected, Switched(4, form, {more})), "");
      ASSERT_FALSE(HasFailure());
    }
  }
}

// What a factor made of a moment: new = factor x old.
double FactorOf(const std::vector<float>& now, const std::vector<float>& old) {
  double product = 0, square = 0;
  for (size_t i = 0; i < old.size(); ++i) {
    product += double{now[i]} * old[i];
    square += double{old[i]} * old[i];
  }
  return square == 0 ? 1 : product / square;
}

// A tensor's name without its block's number.
std::string InAnyBlock(const std::string& name) {
  const size_t blocks = name.find("blocks/");
  if (blocks == std::string::npos) return name;
  return name.substr(0, blocks) + name.substr(name.find('/', blocks + 7));
}

// By tensor, the factors of m and of v.
std::map<std::string, std::pair<double, double>> FactorsOf(const Tensors& now,
                                                           const Tensors& old) {
  std::map<std::string, std::pair<double, double>> factors;
  for (const auto& [name, values] : now) {
    if (!absl::EndsWith(name, "/m")) continue;
    const std::string v = name.substr(0, name.size() - 1) + "v";
    factors[name] = {FactorOf(values, old.at(name)),
                     FactorOf(now.at(v), old.at(v))};
  }
  return factors;
}

// Gradients of the batches that measure are sums in another order: each off by
// a share `delta` of its size at most. Of layers l that shared with gradients
// g_l and sum G, sqrt(b_l) is |g_l| / |G|, and kappa their sum over l: how much
// more they are than their sum. To first order |G|^2 is then off by 2 delta
// kappa of itself, |g_l|^2 by 2 delta, <g_l, G> by delta |g_l| |G| (1 + kappa),
// and each of the two clip factors by delta. Divided: v by 2 delta (2 + kappa)
// of itself, m by delta (3 + 3 kappa) sqrt(b_l) m, as a_l <= sqrt(b_l).
TEST_F(SwitchedStateTest, CalibratedStateIsCloseToThatWithoutAChangeOfLayout) {
  constexpr double kDelta = 2e-5;  // of gradient norms in docs/equality.md
  const std::vector<std::string> form = {"stage.1.state=calibrated",
                                         "optimizer.clip=0.5"};
  ASSERT_NO_FATAL_FAILURE(Pseudo(4, form));
  const Tensors old = runs_.Load("run", kSwitch);
  const Tensors here = Switched(4, form, {kData4});
  const Tensors cut = Switched(4, form, {kCut});
  // The same ranks before it: the same sums.
  const Tensors always = Switched(
      4, form, {kCut, "stage.0.parallel={tensor=2, pipeline=2, zero=1}"});
  ASSERT_FALSE(HasFailure());
  EXPECT_EQ(FirstDifference(cut, always), "");
  const auto a = FactorsOf(here, old), b = FactorsOf(cut, old);
  std::map<std::string, double> kappa;
  for (const auto& [name, of] : a) {
    kappa[InAnyBlock(name)] += std::sqrt(of.second);
  }
  double most = 0;
  int measured = 0;
  for (const auto& [name, of] : a) {
    const auto [first, second] = b.at(name);
    const double k = kappa.at(InAnyBlock(name));
    const double m = std::abs(first - of.first) / std::sqrt(of.second);
    const double v = std::abs(second - of.second) / of.second;
    EXPECT_LT(m, kDelta * (3 + 3 * k)) << name << " " << k;
    EXPECT_LT(v, 2 * kDelta * (2 + k)) << name << " " << k;
    most = std::max({most, m / (3 + 3 * k), v / (4 + 2 * k)});
    measured += std::abs(of.first - 0.25) > 1e-3 ? 1 : 0;
  }
  RecordProperty("most", absl::StrCat(most, " of ", a.size()));
  EXPECT_GT(measured, 10) << "factors that `scale` would not take";
  for (const auto& [name, values] : here) {
    if (absl::StartsWith(name, "/optimizer/")) continue;
    EXPECT_EQ(values, cut.at(name)) << name;
  }
}

}  // namespace
}  // namespace delink::testing::switched_state_test
