// Runs that compute in bf16, or keep masters, moments and gradients in fewer
// bits: their losses are nearly those of more bits. That one run is one run is
// in whole_run_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "tests/recipes/run/tiny_run.h"
#include "tests/testing/source_path.h"

namespace delink::testing::storage_test {
namespace {

constexpr int64_t kSteps = 20;

struct Storage {
  const char* name;
  std::vector<std::string> sets, beside;
  // How far the losses of 100 steps of real text are from those beside them,
  // relative: each, and the last half in the mean. Twice what was seen, or
  // more; sums of products have other bits on other processors (without a
  // master the last mean was at most 2e-4 with AVX-512, 1.6e-3 with AVX2).
  double most, mean;
};
const std::vector<Storage> kStorages = {
    {"Bf16", {"run.precision=bf16"}, {}, 0.003, 0.001},
    {"Fp32And8Bit", {"optimizer.moments=8bit"}, {}, 0.003, 0.001},
    {"SplitAndBf16",
     {"run.precision=bf16", "run.master=split", "optimizer.moments=bf16"},
     {},
     0.003,
     0.001},
    {"NoneAnd8Bit",
     {"run.precision=bf16", "run.master=none", "optimizer.moments=8bit"},
     {},
     0.005,
     0.0035},
    {"Gradients",
     {"run.precision=bf16", "run.gradients=bf16"},
     {"run.precision=bf16"},
     0.0015,
     0.0003},
    // What differs more from seed to seed.
    {"Least",
     {"run.precision=bf16", "run.gradients=bf16", "run.master=none",
      "optimizer.moments=8bit"},
     {"run.precision=bf16"},
     0.01,
     0.006}};

class StorageTest : public ::testing::TestWithParam<Storage> {};
INSTANTIATE_TEST_SUITE_P(Ways, StorageTest, ::testing::ValuesIn(kStorages),
                         [](const auto& info) {
                           return std::string(info.param.name);
                         });

// Real text, until much of what there is to learn is learnt.
TEST_P(StorageTest, LossesStayBesideThoseOfMoreBits) {
  TinyRuns runs("tiny", *ReadFile(SourcePath("LICENSE")));
  runs.sets = {"schedule.steps=100",     "schedule.warmup=10",
               "stage.0.until.steps=40", "optimizer.lr=1e-3",
               "data.batch=32",          "run.micro_batch=8",
               "run.checkpoint_every=0", "run.validate_every=0"};
  runs.Go({.sets = GetParam().beside, .out = "beside"});
  runs.Go({.sets = GetParam().sets, .out = "small"});
  const std::vector<Step> beside = runs.Steps("beside"),
                          small = runs.Steps("small");
  ASSERT_EQ(beside.size(), 100);
  EXPECT_LT(beside.back().loss, 0.6 * beside.front().loss);
  EXPECT_LT(LossDifference(beside, small), GetParam().most);
  // No drift to one side.
  double sum = 0;
  for (size_t i = 50; i < 100; ++i) sum += small[i].loss / beside[i].loss - 1;
  EXPECT_LT(std::abs(sum / 50), GetParam().mean);
  RecordProperty("most", absl::StrCat(LossDifference(beside, small)));
  RecordProperty("mean", absl::StrCat(sum / 50));
}

// Checkpoints hold plain f32, so that a run may go on otherwise than it began;
// an f32 master that becomes a split one is still the same.
TEST(StorageChangeTest, ARunMayGoOnOtherwise) {
  TinyRuns runs;
  runs.sets = {"run.precision=bf16"};
  runs.Go({.out = "run", .until_step = 7});
  const Tensors before = runs.Load("run", 7);
  runs.Go({.sets = {"run.master=split", "optimizer.lr=1e-35"},
           .out = "run",
           .until_step = 8,
           .resume = true});
  const Tensors after = runs.Load("run", 8);
  for (const auto& [name, values] : before) {
    if (name.rfind("/model", 0) != 0) continue;
    EXPECT_EQ(values, after.at(name)) << name;
  }
  runs.Go({.sets = {"optimizer.moments=8bit", "run.gradients=bf16"},
           .out = "run",
           .resume = true});
  EXPECT_EQ(runs.Steps("run").size(), kSteps);
}

TEST(StorageChangeTest, WhatCannotBeIsRefused) {
  const struct {
    std::vector<std::string> sets;
    const char* said;
  } cases[] = {{{"run.master=split"}, "is for run.precision \"bf16\""},
               {{"run.gradients=bf16"},
                "run.gradients: \"bf16\" is for run.precision \"bf16\""}};
  for (const auto& [sets, said] : cases) {
    const absl::Status status = TinyRuns().Run({.sets = sets, .out = "run"});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(said));
  }
}

}  // namespace
}  // namespace delink::testing::storage_test
