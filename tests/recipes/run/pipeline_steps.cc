#include "tests/recipes/run/pipeline_steps.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "framework/base/rng.h"

namespace delink::testing {
namespace {

constexpr double kLr = 1e-3;
constexpr int64_t kSteps = 5;

// Holds up what begins, one time in four, by a rank's own dice.
class LateWatch final : public StepWatch {
 public:
  explicit LateWatch(int rank)
      : key_(Fold(KeyFromSeed(7), static_cast<uint64_t>(rank))) {}
  void Begin(Lane, int64_t, std::string_view) override {
    const uint32_t dice = Philox(key_, count_++, 0)[0];
    if (dice % 4 != 0) return;
    std::this_thread::sleep_for(std::chrono::microseconds(dice / 4 % 400));
  }
  double Vote() override { return 1; }

 private:
  const RngKey key_;
  std::atomic<uint64_t> count_ = 0;
};

void ExpectSameResult(const StepResult& a, const StepResult& b) {
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.grad_norm, b.grad_norm);
  EXPECT_FALSE(a.skipped);
  EXPECT_FALSE(b.skipped);
}

void ExpectSameGradients(StepRig& rig, StepRig& without) {
  const HostBatch batch = rig.Batch(0);
  const auto a = rig.executor().Gradients(batch, 1);
  const auto b = without.executor().Gradients(batch, 1);
  ASSERT_TRUE(a.ok()) << a.status();
  ExpectSameResult(*a, *b);
  EXPECT_EQ(rig.executor().GradientNorms(), without.executor().GradientNorms());
  for (const std::string& name : rig.TensorsHere()) {
    EXPECT_EQ(rig.Gradient(name), without.Gradient(name)) << name;
  }
}

void ExpectSameSteps(StepRig& rig, StepRig& without) {
  for (int64_t step = 1; step <= kSteps; ++step) {
    const HostBatch batch = rig.Batch(step);
    const auto a = rig.executor().TrainStep(batch, step, kLr);
    ASSERT_TRUE(a.ok()) << a.status();
    ExpectSameResult(*a, *without.executor().TrainStep(batch, step, kLr));
    if (step % 2 == 0) continue;
    const auto loss = rig.executor().Evaluate(batch);
    const auto expected = without.executor().Evaluate(batch);
    ASSERT_TRUE(loss.ok()) << loss.status();
    EXPECT_EQ(loss->loss_sum, expected->loss_sum);
    EXPECT_EQ(loss->tokens, expected->tokens);
  }
  EXPECT_EQ(*rig.executor().WeightNorms(), *without.executor().WeightNorms());
  for (const std::string& name : rig.TensorsHere()) {
    EXPECT_EQ(rig.Weight(name), without.Weight(name)) << name;
  }
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const PipelineCase& of) {
  const RigOptions& o = of.options;
  return out << of.kind << ", pipeline " << of.pipeline << " x " << of.turns
             << ", data " << of.data << ", micro-batches " << of.micro_batches
             << ", layers " << o.layers << ", zero " << o.zero << ", "
             << ToString(o.dtype)
             << (o.bf16_gradients ? ", bf16 gradients" : "")
             << (o.recompute ? ", recompute" : "")
             << (o.lane_threads ? ", threads" : "")
             << (o.masked ? ", masked" : "")
             << (o.dropout > 0 ? ", dropout" : "")
             << (of.delays ? ", delays" : "");
}

void ExpectStepsAsWithout(Communicator& world, const PipelineCase& of) {
  ASSERT_EQ(world.size(), of.ranks());
  RigOptions options = OfKind(of.kind, of.options);
  options.micro_batch = 2;
  options.global_batch = of.data * of.micro_batches * options.micro_batch;
  // Each stage's data ranks by themselves.
  const auto stage =
      *world.Split(world.rank() / of.data, world.rank() % of.data);
  StepRig without(*stage, "none", options);
  LateWatch watch(world.rank());
  options.pipeline = of.pipeline;
  options.turns = of.turns;
  if (of.delays) options.watch = &watch;
  StepRig rig(world, "none", options);
  EXPECT_EQ(rig.executor().flops_per_micro_batch(),
            without.executor().flops_per_micro_batch());
  EXPECT_EQ(rig.device().bytes_in_use(), rig.executor().account().total());
  const int64_t allocations = rig.device().allocations();
  ExpectSameGradients(rig, without);
  ExpectSameSteps(rig, without);
  EXPECT_EQ(rig.device().allocations(), allocations);
  const auto diagnosis = rig.executor().Diagnose(rig.Batch(1), kSteps + 1);
  ASSERT_TRUE(diagnosis.ok()) << diagnosis.status();
  EXPECT_EQ(*diagnosis, "the loss itself is not finite");
}

}  // namespace delink::testing
