// What a run on a GPU is refused for, and which device it takes, on the
// emulated one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/comm/self_communicator.h"
#include "framework/device/cuda/scratch.h"
#include "recipes/run/setup/choose_device.h"
#include "tests/recipes/run/tiny_run.h"
#include "tests/testing/simt/simt.h"

namespace delink::testing::cuda_bad_input_test {
namespace {

using simt::ScopedOptions;
using ::testing::AllOf;
using ::testing::HasSubstr;

class CudaBadInputTest : public ::testing::Test {
 protected:
  absl::Status Try(std::vector<std::string> more) {
    std::vector<std::string> sets = {"model.layers=2", "model.dim=16",
                                     "model.heads=2",  "data.seq=12",
                                     "data.batch=4",   "run.device=cuda"};
    sets.insert(sets.end(), more.begin(), more.end());
    return runs_.Run({.sets = sets, .out = "run", .until_step = 1});
  }
  TinyRuns runs_{"tiny"};
};

// And leaves no folder: the next try with the same words is a first one.
TEST_F(CudaBadInputTest, OutOfMemoryTellsTheAccountAndTheKnobs) {
  {
    const ScopedOptions options({.memory_bytes = int64_t{16} << 20});
    const absl::Status status = Try({});
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(
        std::string(status.message()),
        AllOf(HasSubstr("stage pseudo"), HasSubstr("weights "),
              HasSubstr("activations "), HasSubstr("only 16.0 MiB free"),
              HasSubstr("run.micro_batch"), HasSubstr("run.recompute"),
              HasSubstr("stage.share")));
  }
  {
    // The first stage alone would fit.
    const ScopedOptions options(
        {.memory_bytes = cuda::kScratchBytes + (int64_t{1} << 20)});
    const absl::Status status = Try({"model.layers=16", "run.recompute=block"});
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("stage real"));
  }
  const absl::Status status = Try({});
  EXPECT_TRUE(status.ok()) << std::string(status.message());
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
}  // namespace delink::testing::cuda_bad_input_test
