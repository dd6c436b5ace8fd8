// Runs whose gradients of weights are kept in bf16 (run.gradients): losses are
// nearly those of gradients in f32, and weights move as one rank's do, however
// a batch is cut. That one run is one run is in
// whole_run_test.cc.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::bf16_gradients_test {
namespace {

const std::vector<std::string> kBf16 = {"run.precision=bf16",
                                        "run.gradients=bf16"};
constexpr const char* kFp32 = "run.gradients=fp32";  // in its place

class Bf16GradientsTest : public ::testing::TestWithParam<const char*> {
 protected:
  Bf16GradientsTest() : runs_(GetParam()) { runs_.sets = kBf16; }
  TinyRuns runs_;
};
INSTANTIATE_TEST_SUITE_P(Recipes, Bf16GradientsTest,
                         ::testing::ValuesIn(kTinyRecipes));

// The pseudo stage adds 4 micro-batches of 4 layers up, 16 roundings of 2^-8 at
// most; what AdamW makes of that is a small part of its step. Losses differed
// by 4e-5.
TEST_P(Bf16GradientsTest, IsNearlyTheRunWithGradientsInF32) {
  runs_.Go({.sets = {"run.probe_every=4", kFp32}, .out = "fp32"});
  runs_.Go({.sets = {"run.probe_every=4"}, .out = "bf16"});
  const std::vector<Step> fp32 = runs_.Steps("fp32");
  const std::vector<Step> bf16 = runs_.Steps("bf16");
  EXPECT_EQ(bf16.front().loss, fp32.front().loss);
  EXPECT_NE(bf16.back().loss, fp32.back().loss);
  EXPECT_LT(LossDifference(fp32, bf16), 5e-4);
  for (size_t i = 0; i < fp32.size(); ++i) {
    EXPECT_NEAR(bf16[i].grad_norm, fp32[i].grad_norm, 0.05 * fp32[i].grad_norm);
  }
  const std::vector<Probe> a = runs_.Probes("fp32"), b = runs_.Probes("bf16");
  ASSERT_EQ(a.size(), b.size());
  ASSERT_FALSE(a.empty());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i].agreement, b[i].agreement, 0.02);
  }
  RecordProperty("losses", absl::StrCat(LossDifference(fp32, bf16)));
}

TEST(Bf16GradientsOptimizersTest, Learn) {
  TinyRuns runs;
  runs.sets = kBf16;
  for (const std::string kind : {"sgd", "lion", "adafactor", "muon"}) {
    runs.Go({.sets = {"optimizer.kind=" + kind, "optimizer.clip_value=0.01"},
             .out = kind});
    const std::vector<Step> steps = runs.Steps(kind);
    EXPECT_LT(steps.back().loss, steps.front().loss) << kind;
  }
}

// Every micro-batch moves the weights, and counts once: SGD without clipping
// hides no factor. A micro-batch too few or counted twice would be 1/8 off.
TEST(AccumulationTest, MovesWeightsAsOneMicroBatchDoes) {
  for (const auto& [numbers, near] :
       {std::pair{std::vector<std::string>{}, 1e-4}, std::pair{kBf16, 0.06}}) {
    TinyRuns runs;
    runs.sets = numbers;
    runs.sets.insert(runs.sets.end(),
                     {"optimizer.kind=sgd", "optimizer.lr=0.05",
                      "optimizer.clip=0", "stage.0.share=none"});
    runs.Go({.sets = {"run.micro_batch=8"}, .out = "begin", .until_step = 1});
    runs.Go({.sets = {"run.micro_batch=8"}, .out = "one", .until_step = 4});
    const Tensors one = runs.Load("one", 4);
    const double way = WeightDifference(runs.Load("begin", 1), one, 1);
    for (const std::string layout :
         {"{data=2}", "{data=2,zero=2}", "{data=2,zero=3}", "{pipeline=2}"}) {
      for (const int micro_batch : {1, 2, 4}) {
        const std::string out = absl::StrCat(layout, micro_batch);
        runs.Go({.ranks = 2,
                 .sets = {absl::StrCat("run.micro_batch=", micro_batch),
                          "stage.0.parallel=" + layout},
                 .out = out,
                 .until_step = 4});
        EXPECT_LT(WeightDifference(runs.Load(out, 4), one, 1), near * way)
            << out;
      }
    }
  }
}

}  // namespace
}  // namespace delink::testing::bf16_gradients_test
