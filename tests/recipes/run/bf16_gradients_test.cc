// Runs whose gradients of weights are kept in bf16 (run.gradients): losses are
// nearly those of gradients in f32. That one run is one run is in
// whole_run_test.cc.
#include <gtest/gtest.h>

#include <string>
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

}  // namespace
}  // namespace delink::testing::bf16_gradients_test
