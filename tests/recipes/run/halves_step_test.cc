// Steps whose backwards are in two halves, the second ones any number of
// micro-batches late, are those of whole backwards, bit for bit.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "framework/comm/self_communicator.h"
#include "framework/step/plan/assemble.h"
#include "tests/recipes/run/hybrid.h"
#include "tests/recipes/run/step_rig.h"
#include "tests/testing/halves.h"

namespace delink::testing::halves_step_test {
namespace {

constexpr double kLr = 1e-3;
constexpr int64_t kSteps = 3;

struct Order {
  int64_t micro_batches;
  int32_t behind;
};
constexpr Order kOrders[] = {{1, 0}, {1, 1}, {2, 0}, {2, 1},
                             {3, 1}, {3, 2}, {4, 0}, {4, 2}};

class HalvesStepTest
    : public ::testing::TestWithParam<std::tuple<const char*, StepNumbers>> {
 protected:
  // Of the test's kind of model and numbers.
  static RigOptions Of(const Order& order, bool recompute) {
    const std::string kind = std::get<0>(GetParam());
    const StepNumbers numbers = std::get<1>(GetParam());
    RigOptions options = {.dtype = numbers.dtype,
                          .bf16_gradients = numbers.bf16_gradients,
                          .micro_batch = 2,
                          .global_batch = 2 * order.micro_batches,
                          .recompute = recompute,
                          .dropout = 0.1};
    if (kind == "hybrid") {
      options.build = BuildHybrid;
      return options;
    }
    return OfKind(kind, options);
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, HalvesStepTest,
                         ::testing::Combine(::testing::Values("gpt", "llama",
                                                              "hybrid"),
                                            ::testing::ValuesIn(kNumbers)));

void ExpectSameResult(const StepResult& a, const StepResult& b) {
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.grad_norm, b.grad_norm);
}

// `halves` is another executor of the rig.
void ExpectSameSteps(StepRig& rig, Executor& halves, StepRig& whole) {
  HostBatch batch = whole.Batch(0);
  ExpectSameResult(*halves.Gradients(batch, 1),
                   *whole.executor().Gradients(batch, 1));
  for (const std::string& name : whole.Tensors()) {
    EXPECT_EQ(rig.Gradient(name), whole.Gradient(name)) << name;
  }
  for (int64_t step = 1; step <= kSteps; ++step) {
    batch = whole.Batch(step);
    ExpectSameResult(*halves.TrainStep(batch, step, kLr),
                     *whole.executor().TrainStep(batch, step, kLr));
    EXPECT_EQ(halves.Evaluate(batch)->loss_sum,
              whole.executor().Evaluate(batch)->loss_sum);
  }
  ASSERT_TRUE(halves.Drain().ok());
  for (const std::string& name : whole.Tensors()) {
    EXPECT_EQ(rig.Master(name), whole.Master(name)) << name;
    EXPECT_EQ(rig.Moment(name, 1), whole.Moment(name, 1)) << name;
  }
}

TEST_P(HalvesStepTest, HaveTheBitsOfTheWholeAndTakeWhatTheirAccountSays) {
  for (const Order& order : kOrders) {
    for (const bool recompute : {false, true}) {
      const std::string share = order.micro_batches % 2 == 0 ? "none" : "all";
      SCOPED_TRACE(::testing::Message()
                   << order.micro_batches << " micro-batches, " << order.behind
                   << " behind, share " << share
                   << (recompute ? ", recompute" : ""));
      SelfCommunicator comm;
      const RigOptions options = Of(order, recompute);
      StepRig whole(comm, share, options), rig(comm, share, options);
      const int64_t before = rig.device().bytes_in_use();
      const std::unique_ptr<Executor> halves =
          *rig.NewExecutor(PlannerOf(HalvesBehind(order.behind), recompute));
      const MemoryAccount account = halves->account();
      EXPECT_EQ(rig.device().bytes_in_use() - before,
                account.allocated() - account.planes());
      EXPECT_GT(account.slots, whole.executor().account().slots);
      EXPECT_EQ(halves->flops_per_micro_batch(),
                whole.executor().flops_per_micro_batch());
      const int64_t allocations = rig.device().allocations();
      ExpectSameSteps(rig, *halves, whole);
      EXPECT_EQ(rig.device().allocations(), allocations);
    }
  }
}

// Some layers of a step may go backward whole, others not.
TEST_P(HalvesStepTest, MayBeOfSomeLayers) {
  SelfCommunicator comm;
  const RigOptions options = Of({3, 1}, false);
  StepRig whole(comm, "none", options), rig(comm, "none", options);
  const Planner planner = PlannerOf(HalvesBehind(1), false);
  const std::unique_ptr<Executor> some = *rig.NewExecutor(
      [planner](PassKind kind, const ProgramShape& shape, int32_t stage) {
        Program program = planner(kind, shape, stage);
        std::erase_if(program.instructions, [](const Instruction& at) {
          return at.layer == 2 && at.op == Op::kBackwardWeight;
        });
        for (Instruction& at : program.instructions) {
          if (at.layer == 2 && at.op == Op::kBackwardInput) {
            at.op = Op::kBackward;
          }
        }
        return program;
      });
  ExpectSameSteps(rig, *some, whole);
}

}  // namespace
}  // namespace delink::testing::halves_step_test
