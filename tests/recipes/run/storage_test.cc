// Runs that keep masters and moments in fewer bits: their losses are nearly
// those of f32. That one run is one run is in whole_run_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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
  const char* precision;
  const char* master;
  const char* moments;
  // How far the losses of 100 steps of real text are from those of fp32 all
  // over, relative: each, and the last half in the mean. Twice what was seen,
  // or more; sums of products have other bits on other processors (with AVX-512
  // the last mean was at most 2e-4, with AVX2 1.6e-3).
  double most, mean;
};
constexpr Storage kStorages[] = {
    {"Fp32And8Bit", "fp32", "fp32", "8bit", 0.003, 0.001},
    {"SplitAndBf16", "bf16", "split", "bf16", 0.003, 0.001},
    {"NoneAnd8Bit", "bf16", "none", "8bit", 0.005, 0.0035}};

class StorageTest : public ::testing::TestWithParam<Storage> {
 protected:
  static std::vector<std::string> Sets(const Storage& storage) {
    return {absl::StrCat("run.precision=", storage.precision),
            absl::StrCat("run.master=", storage.master),
            absl::StrCat("optimizer.moments=", storage.moments)};
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, StorageTest, ::testing::ValuesIn(kStorages),
                         [](const auto& info) {
                           return std::string(info.param.name);
                         });

// Real text, until much of what there is to learn is learnt.
TEST_P(StorageTest, LossesStayBesideFp32) {
  const TinyRuns runs("tiny", *ReadFile(SourcePath("LICENSE")));
  const std::vector<std::string> course = {
      "schedule.steps=100",     "schedule.warmup=10",  "stage.0.until.steps=40",
      "optimizer.lr=1e-3",      "data.batch=32",       "run.micro_batch=8",
      "run.checkpoint_every=0", "run.validate_every=0"};
  std::vector<std::string> sets = course;
  for (const std::string& set : Sets(GetParam())) sets.push_back(set);
  runs.Go({.sets = course, .out = "fp32"});
  runs.Go({.sets = sets, .out = "small"});
  const std::vector<Step> fp32 = runs.Steps("fp32"),
                          small = runs.Steps("small");
  ASSERT_EQ(fp32.size(), 100);
  EXPECT_LT(fp32.back().loss, 0.6 * fp32.front().loss);
  EXPECT_LT(LossDifference(fp32, small), GetParam().most);
  double sum = 0;
  for (size_t i = 50; i < 100; ++i) sum += small[i].loss / fp32[i].loss - 1;
  EXPECT_LT(std::abs(sum / 50), GetParam().mean);
  RecordProperty("most", absl::StrCat(LossDifference(fp32, small)));
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
  const TinyRuns runs;
  const absl::Status fp32 =
      runs.Run({.sets = {"run.master=split"}, .out = "fp32"});
  EXPECT_EQ(fp32.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(fp32.message()),
              ::testing::HasSubstr("is for run.precision \"bf16\""));
  const absl::Status gradients =
      runs.Run({.sets = {"run.gradients=bf16"}, .out = "gradients"});
  EXPECT_EQ(gradients.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(gradients.message()),
              ::testing::HasSubstr(
                  "run.gradients: \"bf16\" is for run.precision \"bf16\""));
  const absl::Status lion = runs.Run(
      {.sets = {"run.precision=bf16", "run.master=none", "optimizer.kind=lion"},
       .out = "lion"});
  EXPECT_EQ(lion.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(lion.message()),
              ::testing::HasSubstr("is for optimizer kind \"adamw\""));
}

}  // namespace
}  // namespace delink::testing::storage_test
