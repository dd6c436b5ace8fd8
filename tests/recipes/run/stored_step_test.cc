// Steps whose slots go to the host between forward and backward are those whose
// slots stay, bit for bit, and take what their account says: of the device less
// by the slots that are not there, of the host as many as are ever away.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "framework/comm/self_communicator.h"
#include "offload/plan/stored_slots.h"
#include "tests/recipes/run/step_rig.h"

namespace delink::testing::stored_step_test {
namespace {

constexpr double kLr = 1e-3;
constexpr int64_t kSteps = 3, kLayers = 6;

class StoredStepTest : public ::testing::TestWithParam<
                           std::tuple<const char*, MicroBatchOrder, bool>> {
 protected:
  static bool recompute() { return std::get<2>(GetParam()); }
  static MicroBatchOrder order() { return std::get<1>(GetParam()); }
  static RigOptions Options(bool lane_threads) {
    return OfKind(std::get<0>(GetParam()), {.layers = kLayers,
                                            .micro_batch = 2,
                                            .global_batch = 6,
                                            .recompute = recompute(),
                                            .lane_threads = lane_threads,
                                            .dropout = 0.1,
                                            .order = order()});
  }
  static std::unique_ptr<Executor> Storing(StepRig& rig) {
    const Planner bare =
        BasicPlanner({.order = order(), .recompute = recompute()});
    return *rig.NewExecutor(
        WithStores(bare, {.layers = std::vector<bool>(kLayers + 2, true)}));
  }
};
INSTANTIATE_TEST_SUITE_P(
    Kinds, StoredStepTest,
    ::testing::Combine(::testing::ValuesIn(kModelKinds),
                       ::testing::Values(MicroBatchOrder::kMicroBatchMajor,
                                         MicroBatchOrder::kLayerMajor),
                       ::testing::Bool()));

int64_t CountOf(const Program& program, Op op) {
  int64_t count = 0;
  for (const Instruction& i : program.instructions) count += i.op == op;
  return count;
}

TEST_P(StoredStepTest, AreTheStepsOfSlotsThatStay) {
  for (const bool lane_threads : {false, true}) {
    SelfCommunicator comm;
    const RigOptions options = Options(lane_threads);
    StepRig whole(comm, "none", options), rig(comm, "none", options);
    const std::unique_ptr<Executor> storing = Storing(rig);
    EXPECT_GT(CountOf(storing->program(), Op::kStoreSlot), 0);
    const int64_t allocations = rig.device().allocations();
    const HostBatch first = whole.Batch(0);
    EXPECT_EQ(storing->Gradients(first, 1)->grad_norm,
              whole.executor().Gradients(first, 1)->grad_norm);
    for (const std::string& name : whole.Tensors()) {
      EXPECT_EQ(rig.Gradient(name), whole.Gradient(name)) << name;
    }
    for (int64_t step = 1; step <= kSteps; ++step) {
      const HostBatch batch = whole.Batch(step);
      EXPECT_EQ(storing->TrainStep(batch, step, kLr)->loss,
                whole.executor().TrainStep(batch, step, kLr)->loss);
      EXPECT_EQ(storing->Evaluate(batch)->loss_sum,
                whole.executor().Evaluate(batch)->loss_sum);
    }
    ASSERT_TRUE(storing->Drain().ok());
    for (const std::string& name : whole.Tensors()) {
      EXPECT_EQ(rig.Master(name), whole.Master(name)) << name;
    }
    EXPECT_EQ(rig.device().allocations(), allocations);
  }
}

TEST_P(StoredStepTest, TakeWhatTheirAccountSays) {
  SelfCommunicator comm;
  StepRig rig(comm, "none", Options(false));
  const int64_t before = rig.device().bytes_in_use();
  const std::unique_ptr<Executor> storing = Storing(rig);
  const MemoryAccount stays = rig.executor().account();
  MemoryAccount account = storing->account();
  EXPECT_EQ(rig.device().bytes_in_use() - before,
            account.allocated() - account.planes());
  // Of the blocks alone, which are a pool.
  const StepMemory& memory = storing->memory();
  const StepMemory::SlotPool blocks = memory.pools[1];
  const bool by_layer = order() == MicroBatchOrder::kLayerMajor;
  const int64_t micro_batches = 3;
  EXPECT_EQ(blocks.slots, by_layer ? micro_batches + 2 : 3);
  const int64_t fewer = rig.executor().memory().pools[1].slots - blocks.slots;
  EXPECT_GT(fewer, 0);
  EXPECT_EQ(account.host, fewer * blocks.bytes);
  EXPECT_EQ(memory.stored_bytes(), account.host);
  // All else is as it was.
  account.slots += account.host;
  EXPECT_EQ(account.slots, stays.slots);
  EXPECT_EQ(account.allocated(), stays.allocated());
}

}  // namespace
}  // namespace delink::testing::stored_step_test
