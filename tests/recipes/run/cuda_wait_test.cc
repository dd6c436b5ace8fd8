// A step on the emulated CUDA device: when the host waits for it, and what is
// taken of it in all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "framework/comm/self_communicator.h"
#include "tests/recipes/run/step_rig.h"
#include "tests/testing/simt/simt.h"

namespace delink::testing::cuda_wait_test {
namespace {

constexpr double kLr = 1e-3;

class CudaWaitTest
    : public ::testing::TestWithParam<std::tuple<const char*, DType>> {
 protected:
  static RigOptions Of(RigOptions options) {
    options.device = DeviceKind::kCuda;
    options.dtype = std::get<1>(GetParam());
    options.layers = 2;
    options.global_batch = 4;
    options.recompute = true;
    return OfKind(std::get<0>(GetParam()), options);
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, CudaWaitTest,
                         ::testing::Combine(::testing::ValuesIn(kModelKinds),
                                            ::testing::ValuesIn(kPrecisions)));

// The emulated device works only while the host waits.
class Kernels final : public StepWatch {
 public:
  void Begin(Lane, int64_t, std::string_view) override {
    run.push_back(simt::kernels_run());
  }
  double Vote() override { return 3; }
  std::vector<int64_t> run;
};

TEST_P(CudaWaitTest, TheHostWaitsAtTheEndOfAStepOnly) {
  SelfCommunicator comm;
  Kernels watch;
  StepRig rig(comm, "all", Of({.watch = &watch}));
  for (int64_t step = 1; step <= 2; ++step) {
    const int64_t before = simt::kernels_run();
    watch.run.clear();
    const StepResult result =
        *rig.executor().TrainStep(rig.Batch(step), step, kLr);
    EXPECT_THAT(watch.run, ::testing::Each(before));
    EXPECT_GT(watch.run.size(), 10);
    EXPECT_GT(simt::kernels_run(), before);
    EXPECT_EQ(result.votes, 3);
  }
}

TEST_P(CudaWaitTest, BetweenBeginAndFinishTheHostIsFree) {
  SelfCommunicator comm;
  StepRig together(comm, "all", Of({})), apart(comm, "all", Of({}));
  for (int64_t step = 1; step <= 3; ++step) {
    const StepResult expected =
        *together.executor().TrainStep(together.Batch(step), step, kLr);
    const HostBatch batch = apart.Batch(step);
    const int64_t before = simt::kernels_run();
    ASSERT_TRUE(apart.executor().Begin(batch, step, kLr).ok());
    EXPECT_EQ(simt::kernels_run(), before);
    const StepResult result = *apart.executor().Finish();
    EXPECT_GT(simt::kernels_run(), before);
    EXPECT_EQ(result.loss, expected.loss);
    EXPECT_EQ(result.grad_norm, expected.grad_norm);
  }
}

// So that it enqueues the next step while there is work left of this one.
TEST_P(CudaWaitTest, TheHostHasTheResultWhileTheDeviceUpdates) {
  SelfCommunicator comm;
  StepRig rig(comm, "all", Of({}));
  const auto updates = std::ranges::count_if(
      rig.executor().program().instructions,
      [](const Instruction& at) { return at.op == Op::kUpdate; });
  for (int64_t step = 1; step <= 2; ++step) {
    ASSERT_TRUE(rig.executor().TrainStep(rig.Batch(step), step, kLr).ok());
    const int64_t at_result = simt::kernels_run();
    ASSERT_TRUE(rig.executor().Drain().ok());
    EXPECT_GE(simt::kernels_run() - at_result, updates);
  }
}

TEST_P(CudaWaitTest, NothingIsTakenButTheAccount) {
  SelfCommunicator comm;
  StepRig rig(comm, "all", Of({}));
  const int64_t taken = simt::bytes_in_use();
  const MemoryAccount account = rig.executor().account();
  // One rank has no staging, and an empty block takes a byte.
  EXPECT_EQ(account.copies, 0);
  EXPECT_EQ(taken, account.total() + 1);
  for (int64_t step = 1; step <= 2; ++step) {
    ASSERT_TRUE(rig.executor().TrainStep(rig.Batch(step), step, kLr).ok());
    ASSERT_TRUE(rig.executor().Evaluate(rig.Batch(step)).ok());
  }
  EXPECT_EQ(simt::bytes_in_use(), taken);
}

}  // namespace
}  // namespace delink::testing::cuda_wait_test
