// Whole runs on a CUDA device: the CPU's runs within rounding, and resumed to
// the bit. Built twice: for the device of this build, skipped where there is
// none, and for the emulated one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/comm/self_communicator.h"
#include "framework/device/cuda/scratch.h"
#include "recipes/models/model_list.h"
#include "recipes/plan/plan.h"
#include "recipes/record/run_folder.h"
#include "recipes/record/stage_text.h"
#include "recipes/saved/evaluate.h"
#include "tests/recipes/run/stream_orders.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::cuda_run_test {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSteps = 8, kSwitch = 4;

class CudaRunTest : public ::testing::TestWithParam<const char*> {
 protected:
  // Runs small enough for an emulated device, of two stages.
  CudaRunTest() {
    runs_.sets = {"model.layers=2",         "model.dim=16",
                  "model.heads=2",          "data.seq=12",
                  "data.batch=4",           "data.validation_batches=1",
                  "schedule.steps=8",       "stage.0.until.steps=4",
                  "run.checkpoint_every=3", "run.validate_every=0",
                  "run.norms_every=4",      "run.device=cuda"};
  }
  void SetUp() override {
    const absl::Status status = HaveCuda();
    if (!status.ok()) GTEST_SKIP() << std::string(status.message());
  }
  void OnCpu(RunRequest request) {
    request.sets.emplace_back("run.device=cpu");
    runs_.Go(request);
  }
  TinyRuns runs_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Recipes, CudaRunTest,
                         ::testing::ValuesIn(kDenseRecipes));

// Tests that are quick on an emulated device.
class QuickCudaRunTest : public CudaRunTest {};
INSTANTIATE_TEST_SUITE_P(Recipes, QuickCudaRunTest,
                         ::testing::ValuesIn(kTinyRecipes));

TEST_P(CudaRunTest, IsTheCpusRunAndResumesToTheBit) {
  const std::vector<std::string> sets = {
      "run.precision=bf16", "run.recompute=block", "stage.1.state=calibrated",
      "run.probe_every=3"};
  OnCpu({.sets = sets, .out = "cpu"});
  runs_.Go({.sets = sets, .out = "cuda"});
  EXPECT_LT(LossDifference(runs_.Steps("cpu"), runs_.Steps("cuda")), 5e-4);
  // Delinking is exact.
  const std::vector<Switch> switches = runs_.Switches("cuda");
  ASSERT_EQ(switches.size(), 1);
  EXPECT_EQ(switches[0].loss_before, switches[0].loss_after);
  const std::vector<Probe> cpu = runs_.Probes("cpu");
  const std::vector<Probe> cuda = runs_.Probes("cuda");
  ASSERT_EQ(cpu.size(), 1);
  ASSERT_EQ(cuda.size(), 1);
  EXPECT_NEAR(cuda[0].agreement, cpu[0].agreement, 0.02);
  // In the pseudo stage, at the switch, in the real stage.
  for (const int64_t stop : {3, 4, 6}) {
    const std::string out = absl::StrCat("stopped", stop);
    runs_.Go({.sets = sets, .out = out, .until_step = stop});
    runs_.Go({.sets = sets, .out = out, .resume = true});
    runs_.ExpectSameBits("cuda", out, kSteps);
  }
}

// Masters and moments in fewer bits, rounded at random, and gradients, and
// other optimizers: on a GPU as on the CPU. Where products differ in the last
// bit a rounding may go the other way.
TEST_P(CudaRunTest, IsTheCpusRunInOtherNumbersAndWithOtherOptimizers) {
  const std::string bf16 = "run.precision=bf16";
  const struct {
    std::vector<std::string> sets;
    double most;
  } ways[] = {{{bf16, "run.master=split", "optimizer.moments=8bit"}, 2e-3},
              {{bf16, "run.master=none", "optimizer.moments=bf16",
                "run.gradients=bf16"},
               2e-3},
              {{bf16, "run.gradients=bf16"}, 2e-3},
              {{"optimizer.kind=sgd"}, 2e-5},
              {{"optimizer.kind=lion"}, 2e-5},
              {{"optimizer.kind=adafactor"}, 2e-5},
              {{"optimizer.kind=muon"}, 2e-5}};
  int number = 0;
  for (const auto& [sets, most] : ways) {
    const std::string name = absl::StrCat("way", number++);
    SCOPED_TRACE(sets.back());
    OnCpu({.sets = sets, .out = "cpu", .overwrite = true});
    runs_.Go({.sets = sets, .out = name});
    EXPECT_LT(LossDifference(runs_.Steps("cpu"), runs_.Steps(name)), most);
    if (most < 1e-3) continue;
    const std::string stopped = "stopped" + name;
    runs_.Go({.sets = sets, .out = stopped, .until_step = 6});
    runs_.Go({.sets = sets, .out = stopped, .resume = true});
    runs_.ExpectSameBits(name, stopped, kSteps);
  }
}

// Sums over rows are cut elsewhere; no more than that.
TEST_P(CudaRunTest, MicroBatchSizeIsClose) {
  runs_.Go({.sets = {"run.micro_batch=4"}, .out = "one"});
  runs_.Go({.sets = {"run.micro_batch=1"}, .out = "four"});
  EXPECT_LT(LossDifference(runs_.Steps("one"), runs_.Steps("four")), 2e-5);
}

TEST_P(CudaRunTest, SumsInAnyOrderAreClose) {
  const std::string bf16 = "run.precision=bf16";
  runs_.Go({.sets = {bf16}, .out = "in_order"});
  runs_.Go({.sets = {bf16, "run.deterministic=false"}, .out = "any"});
  EXPECT_LT(LossDifference(runs_.Steps("in_order"), runs_.Steps("any")), 5e-4);
}

TEST_P(QuickCudaRunTest, GoesOnOnTheOtherDevice) {
  OnCpu({.out = "cpu"});
  OnCpu({.out = "moved", .until_step = 3});
  runs_.Go({.out = "moved", .until_step = 6, .resume = true});
  OnCpu({.out = "moved", .resume = true});
  EXPECT_LT(LossDifference(runs_.Steps("cpu"), runs_.Steps("moved")), 2e-5);
}

// Two ranks on one GPU, who exchange gradients through the host.
TEST_P(CudaRunTest, SeveralRanksAreOneRun) {
  const std::vector<std::string> sets = {"run.ranks_per_gpu=2",
                                         "run.micro_batch=1"};
  std::vector<std::string> sharded = sets;
  sharded.emplace_back("stage.0.parallel.zero=2");
  sharded.emplace_back("stage.1.parallel.zero=3");
  OnCpu({.ranks = 2, .sets = sets, .out = "cpu"});
  runs_.Go({.ranks = 2, .sets = sets, .out = "whole"});
  runs_.Go(
      {.ranks = 2, .sets = sharded, .out = "sharded", .lane_threads = true});
  EXPECT_LT(LossDifference(runs_.Steps("cpu"), runs_.Steps("whole")), 2e-5);
  runs_.ExpectSameBits("whole", "sharded", kSteps);
}

TEST_P(QuickCudaRunTest, EvaluationIsTheCpus) {
  OnCpu({.out = "run", .until_step = 3});
  SelfCommunicator comm;
  EvaluateOptions options{.checkpoint = runs_.Checkpoint("run", 3),
                          .data = runs_.Folder("corpus/train"),
                          .batches = 1};
  const auto cpu = Evaluate(options, BuiltInModels(), comm);
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  options.device = [](const Recipe&) { return NewCudaDevice(0); };
  const auto cuda = Evaluate(options, BuiltInModels(), comm);
  ASSERT_TRUE(cuda.ok()) << cuda.status();
  EXPECT_EQ(cuda->tokens, cpu->tokens);
  EXPECT_NE(cuda->loss, cpu->loss);
  EXPECT_NEAR(cuda->loss, cpu->loss, 2e-5 * cpu->loss);
}

// What is planned anywhere is what is taken.
TEST_P(QuickCudaRunTest, ThePlanIsTheAccountOfTheRun) {
  runs_.Go({.sets = {"run.precision=bf16"}, .out = "run", .until_step = 1});
  const std::string folder = runs_.Folder("run");
  const auto plan =
      PlanRun({.recipe = RunFolder::Recipe(folder)}, BuiltInModels());
  ASSERT_TRUE(plan.ok()) << plan.status();
  const MemoryAccount& account = plan->stages[0].account;
  const std::string metrics = *ReadFile(RunFolder::Metrics(folder));
  const auto start =
      nlohmann::ordered_json::parse(metrics.substr(0, metrics.find('\n')));
  // A real device has more of its own: the driver's.
  nlohmann::ordered_json taken = start["bytes"], planned = ToJson(account);
  EXPECT_EQ(account.overhead, cuda::kScratchBytes);
  EXPECT_GE(taken["overhead"], planned["overhead"]);
  for (const char* key : {"overhead", "total"})
    taken.erase(key), planned.erase(key);
  EXPECT_EQ(taken, planned);
  EXPECT_THAT(start["device"].get<std::string>(), HasSubstr("sm_"));
}

}  // namespace
}  // namespace delink::testing::cuda_run_test
