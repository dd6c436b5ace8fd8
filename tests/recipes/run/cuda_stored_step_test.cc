// Slots that go to the host between forward and backward on a CUDA device: in
// any legal order of its streams the bits of slots that stay. Built twice: for
// the device of this build, skipped where there is none, and for the emulated
// one.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/comm/self_communicator.h"
#include "offload/plan/stored_slots.h"
#include "tests/recipes/run/step_rig.h"
#include "tests/recipes/run/stream_orders.h"

namespace delink::testing::cuda_stored_step_test {
namespace {

constexpr double kLr = 1e-3;
constexpr int64_t kSteps = 2, kLayers = 5;

// The last losses' and all weights' bits.
std::vector<float> Train(StepRig& rig, Executor& executor) {
  std::vector<float> left;
  for (int64_t step = 1; step <= kSteps; ++step) {
    const HostBatch batch = rig.Batch(step);
    left.push_back(
        static_cast<float>(executor.TrainStep(batch, step, kLr)->loss));
  }
  EXPECT_TRUE(executor.Drain().ok());
  for (const std::string& name : rig.Tensors()) {
    const std::vector<float> master = rig.Master(name);
    left.insert(left.end(), master.begin(), master.end());
  }
  return left;
}

// Of the host, for what is offloaded.
int64_t Pinned(const Device& device) {
  for (const auto& entry : device.ledgers().pinned.entries()) {
    if (entry.kind == "offloading") return entry.bytes;
  }
  return 0;
}

TEST(CudaStoredStep, IsTheStepOfSlotsThatStayWhateverTheOrderOfStreams) {
  if (const absl::Status status = HaveCuda(); !status.ok()) {
    GTEST_SKIP() << status;
  }
  for (const MicroBatchOrder order :
       {MicroBatchOrder::kMicroBatchMajor, MicroBatchOrder::kLayerMajor}) {
    for (const bool recompute : {false, true}) {
      SCOPED_TRACE(::testing::Message() << "order " << static_cast<int>(order)
                                        << (recompute ? ", recompute" : ""));
      RigOptions options = {.device = DeviceKind::kCuda,
                            .layers = kLayers,
                            .micro_batch = 1,
                            .global_batch = 3,
                            .recompute = recompute,
                            .dropout = 0.1,
                            .order = order};
      SelfCommunicator comm;
      StepRig whole(comm, "none", options);
      const std::vector<float> stays = Train(whole, whole.executor());
      for (const uint64_t seed : {1, 2}) {
        options.lane_threads = seed == 2;
        InOrder(seed, [&] {
          StepRig rig(comm, "none", options);
          const std::unique_ptr<Executor> storing = *rig.NewExecutor(
              WithStores(BasicPlanner({.order = order, .recompute = recompute}),
                         {.layers = std::vector<bool>(kLayers + 2, true)}));
          EXPECT_GT(storing->account().host, 0);
          EXPECT_EQ(Pinned(rig.device()), storing->account().host);
          EXPECT_EQ(Train(rig, *storing), stays) << "seed " << seed;
        });
      }
    }
  }
}

}  // namespace
}  // namespace delink::testing::cuda_stored_step_test
