// Runs in bf16: what they save, and losses that are those of fp32. That one run
// is one run is in whole_run_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "framework/comm/self_communicator.h"
#include "framework/tensor/bfloat16.h"
#include "recipes/models/model_list.h"
#include "recipes/saved/evaluate.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::precision_test {
namespace {

constexpr int64_t kSteps = 20;
constexpr int64_t kSwitch = 10;  // recipes/tiny.toml

class Bf16Test : public ::testing::Test {
 protected:
  Bf16Test() { runs_.sets = {"run.precision=bf16"}; }
  TinyRuns runs_;
};

// The master is what is saved: not one of the weights it rounds to.
TEST_F(Bf16Test, SavesTheMaster) {
  runs_.Go({.out = "run"});
  const Tensors tensors = runs_.Load("run", kSteps);
  int64_t rounded = 0, all = 0;
  for (const float value : tensors.at("/model/blocks/2/mlp/down/weight")) {
    rounded += float{BFloat16(value)} == value ? 1 : 0;
    ++all;
  }
  EXPECT_LT(rounded, all / 100);
}

// Weights of which none changes in bf16 before the end, but those in f32 do,
// and go on from where they were, not from what they round to.
void ExpectUpdatesBelowAUnit(TinyRuns& runs, const std::string& name) {
  runs.sets.push_back("optimizer.lr=1e-7");
  constexpr int64_t kLast = 4;
  runs.Go({.out = "straight", .until_step = kLast});
  runs.Go({.out = "stopped", .until_step = 1});
  const Tensors first = runs.Load("stopped", 1);
  for (int64_t step = 2; step <= kLast; ++step) {
    runs.Go({.out = "stopped", .until_step = step, .resume = true});
  }
  runs.ExpectSameBits("straight", "stopped", kLast);
  const Tensors last = runs.Load("stopped", kLast);
  int64_t all = 0, changed = 0, changed_in_bf16 = 0;
  for (size_t i = 0; i < first.at(name).size(); ++i) {
    const float a = first.at(name)[i], b = last.at(name)[i];
    ++all;
    changed += a != b ? 1 : 0;
    changed_in_bf16 += float{BFloat16(a)} != float{BFloat16(b)} ? 1 : 0;
  }
  EXPECT_GT(changed, all * 9 / 10);
  EXPECT_LT(changed_in_bf16, all / 20);
}

TEST_F(Bf16Test, UpdatesBelowAUnitSurviveResume) {
  ExpectUpdatesBelowAUnit(runs_, "/model/blocks/2/mlp/down/weight");
}

// Also without masters, where all but these are bf16
// (sgl-project/sglang#37133).
TEST(RoutersInBf16, AreF32AndSurviveResume) {
  TinyRuns runs("tiny_moe");
  runs.sets = {"run.precision=bf16", "run.master=none",
               "model.router.aux_over=batch"};
  ExpectUpdatesBelowAUnit(runs, "/model/blocks/2/moe/router/weight");
  for (const auto& [path, values] : runs.Load("straight", 4)) {
    if (!path.starts_with("/model/")) continue;
    EXPECT_EQ(
        std::ranges::all_of(values, [](float x) { return x == BFloat16(x); }),
        path.find("/moe/router/") == std::string::npos)
        << path;
  }
}

// A run may go on in the other precision, with the weights and the state that
// it had; and fp32 never notices that bf16 came before.
TEST_F(Bf16Test, PrecisionMayChange) {
  for (const std::string first : {"fp32", "bf16"}) {
    const std::string second = first == "fp32" ? "bf16" : "fp32";
    const std::vector<std::string> in_first = {"run.precision=" + first};
    runs_.Go({.sets = in_first, .out = first, .until_step = kSwitch});
    runs_.Go(
        {.sets = {"run.precision=" + second}, .out = first, .resume = true});
    runs_.Go({.sets = in_first, .out = first + "all"});
    EXPECT_EQ(runs_.Steps(first).size(), kSteps);
    const double difference =
        LossDifference(runs_.Steps(first), runs_.Steps(first + "all"));
    EXPECT_GT(difference, 0);
    EXPECT_LT(difference, 0.01);
  }
}

// delink eval computes in fp32 with the master, whatever the run computed in.
TEST_F(Bf16Test, EvaluationIsInFp32) {
  // Of one micro-batch a step, so that all losses are added up alike.
  runs_.Go({.sets = {"data.batch=2"}, .out = "run", .until_step = 5});
  SelfCommunicator comm;
  const auto evaluation = Evaluate({.checkpoint = runs_.Checkpoint("run", 5),
                                    .data = runs_.Folder("corpus/train"),
                                    .batches = 1},
                                   BuiltInModels(), comm);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  double loss[2];
  for (const std::string precision : {"fp32", "bf16"}) {
    runs_.Go({.sets = {"run.precision=" + precision, "data.batch=2",
                       "data.shuffle=false", "stage.0.share=none"},
              .out = precision,
              .until_step = 1,
              .init = runs_.Checkpoint("run", 5)});
    loss[precision == "bf16"] = runs_.Steps(precision).at(0).loss;
  }
  EXPECT_EQ(evaluation->loss, loss[0]);
  EXPECT_NE(evaluation->loss, loss[1]);
  EXPECT_NEAR(evaluation->loss, loss[1], 0.005 * loss[0]);
}

}  // namespace
}  // namespace delink::testing::precision_test
