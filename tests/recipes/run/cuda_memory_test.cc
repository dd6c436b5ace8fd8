// What runs take of the emulated CUDA device: what the plan says, and nothing
// after the first step of a stage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/log.h"
#include "recipes/models/model_list.h"
#include "recipes/plan/plan.h"
#include "recipes/record/run_folder.h"
#include "tests/recipes/run/step_rig.h"
#include "tests/recipes/run/tiny_run.h"
#include "tests/testing/simt/simt.h"

namespace delink::testing::cuda_memory_test {
namespace {

using simt::ScopedOptions;
using ::testing::HasSubstr;

// What empty blocks take, and a block's alignment.
constexpr int64_t kSlack = 1024;

class CudaMemoryTest : public ::testing::Test {
 protected:
  absl::Status Try(const std::string& out, int64_t steps, int ranks = 1) {
    const std::vector<std::string> sets = {
        "model.layers=2",         "model.dim=16",
        "model.heads=2",          "data.seq=12",
        "data.batch=4",           "data.validation_batches=1",
        "schedule.steps=8",       "stage.0.until.steps=4",
        "run.checkpoint_every=3", "run.validate_every=2",
        "run.norms_every=2",      "run.device=cuda",
        "run.precision=bf16",     absl::StrCat("run.ranks_per_gpu=", ranks)};
    return runs_.Run(
        {.ranks = ranks, .sets = sets, .out = out, .until_step = steps});
  }
  RunPlan Plan(const std::string& out) {
    return *PlanRun({.recipe = RunFolder::Recipe(runs_.Folder(out))},
                    BuiltInModels());
  }
  TinyRuns runs_{"tiny"};
};

// Blocks of the device and of the host, streams and events.
TEST_F(CudaMemoryTest, StepsTakeNothingAfterTheFirstOfAStage) {
  // The first run of a process also measures the device.
  ASSERT_TRUE(Try("first", 1).ok());
  std::vector<int64_t> made;
  for (const int64_t steps : {2, 4, 6, 8}) {
    const int64_t before = simt::resources_made();
    const absl::Status status = Try(absl::StrCat("to", steps), steps);
    ASSERT_TRUE(status.ok()) << std::string(status.message());
    made.push_back(simt::resources_made() - before);
  }
  // Steps 3 and 4 with a checkpoint, a validation and norms; and 7 and 8.
  EXPECT_EQ(made[1], made[0]);
  EXPECT_EQ(made[3], made[2]);
  // The switch does.
  EXPECT_GT(made[2], made[1]);
}

// A device that has what the plan says, and no more: also the switch fits.
TEST_F(CudaMemoryTest, ARunTakesWhatThePlanSays) {
  ASSERT_TRUE(Try("first", 1).ok());
  const int64_t needed = Plan("first").peak_bytes();
  const auto with = [&](int64_t bytes, const std::string& out, int ranks) {
    const ScopedOptions options({.memory_bytes = bytes});
    return Try(out, 8, ranks);
  };
  absl::Status status = with(needed + kSlack, "fits", 1);
  EXPECT_TRUE(status.ok()) << std::string(status.message());
  status = with(needed - kSlack, "no", 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(PathExists(runs_.Folder("no")));
}

TEST_F(CudaMemoryTest, RanksThatShareADeviceHaveAPartEach) {
  ASSERT_TRUE(Try("first", 1, 2).ok());
  const int64_t needed = Plan("first").peak_bytes();
  const auto with = [&](int64_t bytes, const std::string& out) {
    const ScopedOptions options({.memory_bytes = bytes});
    return Try(out, 2, 2);
  };
  absl::Status status = with(2 * (needed + kSlack), "fits");
  EXPECT_TRUE(status.ok()) << std::string(status.message());
  status = with(2 * needed - kSlack, "no");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("free for each of the 2 ranks that share it"));
}

TEST_F(CudaMemoryTest, TheLogSaysWhereAttentionIsSlow) {
  SetLogLevel(LogLevel::kInfo);  // which the runs of tests go without
  ASSERT_TRUE(Try("run", 2).ok());
  const std::string log = *ReadFile(RunFolder::Log(runs_.Folder("run")));
  const std::string told = "attention in bf16 uses our own kernels";
  const size_t first = log.find(told);
  ASSERT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find(told, first + 1), std::string::npos) << log;
}

}  // namespace
}  // namespace delink::testing::cuda_memory_test
