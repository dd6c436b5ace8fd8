// Whole runs on the emulated CUDA device: the CPU's runs within rounding,
// resumed to the bit, and refused in words where something is missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/comm/self_communicator.h"
#include "framework/device/cuda/scratch.h"
#include "recipes/models/model_list.h"
#include "recipes/plan/plan.h"
#include "recipes/run/choose_device.h"
#include "recipes/run/evaluate.h"
#include "recipes/run/run_folder.h"
#include "recipes/run/stage_text.h"
#include "tests/recipes/run/tiny_run.h"
#include "tests/testing/simt/simt.h"

namespace delink::testing {
namespace {

using simt::ScopedOptions;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kSteps = 8, kSwitch = 4;

class CudaRunTest : public ::testing::TestWithParam<const char*> {
 protected:
  // A run small enough for an emulated device, of two stages.
  absl::Status Try(RunRequest request, const std::string& device) {
    std::vector<std::string> sets = {
        "model.layers=2",         "model.dim=16",
        "model.heads=2",          "data.seq=12",
        "data.batch=4",           "data.validation_batches=1",
        "schedule.steps=8",       "stage.0.until.steps=4",
        "run.checkpoint_every=3", "run.validate_every=0",
        "run.norms_every=4"};
    sets.insert(sets.end(), request.sets.begin(), request.sets.end());
    sets.push_back("run.device=" + device);
    request.sets = std::move(sets);
    return runs_.Run(request);
  }
  void Go(const RunRequest& request, const std::string& device = "cuda") {
    const absl::Status status = Try(request, device);
    ASSERT_TRUE(status.ok()) << std::string(status.message());
  }
  void ExpectSameBits(const std::string& a, const std::string& b) {
    EXPECT_EQ(LossDifference(runs_.Steps(a), runs_.Steps(b)), 0);
    EXPECT_EQ(FirstDifference(runs_.Load(a, kSteps), runs_.Load(b, kSteps)),
              "");
  }
  TinyRuns runs_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Recipes, CudaRunTest,
                         ::testing::ValuesIn(kTinyRecipes));

TEST_P(CudaRunTest, IsTheCpusRunAndResumesToTheBit) {
  const std::vector<std::string> sets = {
      "run.precision=bf16", "run.recompute=block", "stage.1.state=calibrated",
      "run.probe_every=3"};
  Go({.sets = sets, .out = "cpu"}, "cpu");
  Go({.sets = sets, .out = "cuda"});
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
    Go({.sets = sets, .out = out, .until_step = stop});
    Go({.sets = sets, .out = out, .resume = true});
    ExpectSameBits("cuda", out);
  }
}

TEST_P(CudaRunTest, GoesOnOnTheOtherDevice) {
  Go({.out = "cpu"}, "cpu");
  Go({.out = "moved", .until_step = 3}, "cpu");
  Go({.out = "moved", .until_step = 6, .resume = true}, "cuda");
  Go({.out = "moved", .resume = true}, "cpu");
  EXPECT_LT(LossDifference(runs_.Steps("cpu"), runs_.Steps("moved")), 2e-5);
}

// Two ranks on one GPU, who exchange gradients through the host.
TEST_P(CudaRunTest, SeveralRanksAreOneRun) {
  const std::vector<std::string> sets = {"run.ranks_per_gpu=2",
                                         "run.micro_batch=1"};
  std::vector<std::string> sharded = sets;
  sharded.emplace_back("stage.0.parallel.zero=1");
  sharded.emplace_back("stage.1.parallel.zero=1");
  Go({.ranks = 2, .sets = sets, .out = "cpu"}, "cpu");
  Go({.ranks = 2, .sets = sets, .out = "whole"});
  Go({.ranks = 2, .sets = sharded, .out = "sharded", .lane_threads = true});
  EXPECT_LT(LossDifference(runs_.Steps("cpu"), runs_.Steps("whole")), 2e-5);
  ExpectSameBits("whole", "sharded");
}

TEST_P(CudaRunTest, EvaluationIsTheCpus) {
  Go({.out = "run", .until_step = 3}, "cpu");
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
TEST_P(CudaRunTest, ThePlanIsTheAccountOfTheRun) {
  Go({.sets = {"run.precision=bf16"}, .out = "run", .until_step = 1});
  const std::string folder = runs_.Folder("run");
  const auto plan =
      PlanRun({.recipe = RunFolder::Recipe(folder)}, BuiltInModels());
  ASSERT_TRUE(plan.ok()) << plan.status();
  const MemoryAccount& account = plan->stages[0].account;
  EXPECT_EQ(account.overhead, cuda::kScratchBytes);
  const std::string metrics = *ReadFile(RunFolder::Metrics(folder));
  const auto start =
      nlohmann::ordered_json::parse(metrics.substr(0, metrics.find('\n')));
  EXPECT_EQ(start["bytes"], ToJson(account));
  EXPECT_THAT(start["device"].get<std::string>(), HasSubstr("sm_90"));
}

// And leaves no folder: the next try with the same words is a first one.
TEST_P(CudaRunTest, OutOfMemoryTellsTheAccountAndTheKnobs) {
  {
    const ScopedOptions options({.memory_bytes = int64_t{16} << 20});
    const absl::Status status = Try({.out = "run"}, "cuda");
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("stage pseudo"), HasSubstr("weights "),
                      HasSubstr("activations "), HasSubstr("16.0 MiB are free"),
                      HasSubstr("run.micro_batch"), HasSubstr("run.recompute"),
                      HasSubstr("stage.share")));
  }
  {
    // The first stage alone would fit.
    const ScopedOptions options(
        {.memory_bytes = cuda::kScratchBytes + (int64_t{1} << 20)});
    const absl::Status status =
        Try({.sets = {"model.layers=16", "run.recompute=block"}, .out = "run"},
            "cuda");
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("stage real"));
  }
  Go({.out = "run", .until_step = 1});
}

class ChooseDeviceTest : public ::testing::Test {
 protected:
  static absl::StatusOr<std::unique_ptr<Device>> Choose(
      RunConfig::Device device, int ranks = 1, int64_t ranks_per_gpu = 1) {
    // Only the numbers of ranks are asked for.
    class Ranks final : public SelfCommunicator {
     public:
      explicit Ranks(int size) : size_(size) {}
      int size() const override { return size_; }

     private:
      int size_;
    };
    World world(std::make_unique<SelfCommunicator>(),
                std::make_unique<Ranks>(ranks), "here");
    return ChooseDevice({.device = device, .ranks_per_gpu = ranks_per_gpu},
                        world);
  }
  using Choice = RunConfig::Device;
};

TEST_F(ChooseDeviceTest, AutoTakesAGpuWhereThereIsOne) {
  EXPECT_EQ((*Choose(Choice::kAuto))->kind(), DeviceKind::kCuda);
  EXPECT_EQ((*Choose(Choice::kCuda))->kind(), DeviceKind::kCuda);
  EXPECT_EQ((*Choose(Choice::kCpu))->kind(), DeviceKind::kCpu);
  EXPECT_EQ(KindOfChoice(Choice::kAuto), DeviceKind::kCuda);
  for (const simt::Options& without :
       {simt::Options{.devices = 0, .driver_version = 0},
        simt::Options{.devices = 0}, simt::Options{.driver_version = 12000},
        simt::Options{.major = 7}}) {
    const ScopedOptions options(without);
    EXPECT_EQ((*Choose(Choice::kAuto))->kind(), DeviceKind::kCpu);
    EXPECT_FALSE(Choose(Choice::kCuda).ok());
  }
}

TEST_F(ChooseDeviceTest, RanksShareAGpuOnlyWhereThatIsSaid) {
  for (const Choice choice : {Choice::kAuto, Choice::kCuda}) {
    const absl::Status status = Choose(choice, 2).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("2 ranks"), HasSubstr("1 CUDA device"),
                      HasSubstr("run.ranks_per_gpu = 2"),
                      HasSubstr("run.device = \"cpu\"")));
    EXPECT_TRUE(Choose(choice, 2, 2).ok());
  }
  EXPECT_TRUE(Choose(Choice::kCpu, 2).ok());
  const ScopedOptions two({.devices = 2});
  EXPECT_TRUE(Choose(Choice::kCuda, 2).ok());
}

}  // namespace
}  // namespace delink::testing
