#include "tests/recipes/run/tensor_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "absl/status/statusor.h"
#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/comm/self_communicator.h"
#include "tests/testing/on_ranks.h"

namespace delink::testing {
namespace {

// What is here of a tensor beside all of it.
void ExpectPieces(StepRig& rig, const std::vector<double>& whole,
                  const std::string& tensor, Plane plane, double near) {
  double largest = 1;
  for (const double x : whole) largest = std::max(largest, std::abs(x));
  for (const StepRig::Run& run : rig.Runs(tensor, plane)) {
    for (size_t i = 0; i < run.values.size(); ++i) {
      const auto at = static_cast<size_t>(run.first) + i;
      ASSERT_NEAR(run.values[i], At(whole, at), near * largest)
          << tensor << " " << at;
    }
  }
}

void ExpectNorms(const std::vector<double>& norms,
                 const std::vector<double>& expected, double near) {
  ASSERT_EQ(norms.size(), expected.size());
  for (size_t i = 0; i < norms.size(); ++i) {
    EXPECT_NEAR(norms[i], expected[i], near * (1 + expected[i]))
        << "slab " << i;
  }
}

void ExpectResult(const absl::StatusOr<StepResult>& a, const StepResult& b,
                  double near) {
  ASSERT_TRUE(a.ok()) << a.status();
  EXPECT_NEAR(a->loss, b.loss, near * b.loss);
  EXPECT_EQ(a->tokens, b.tokens);
  EXPECT_NEAR(a->grad_norm, b.grad_norm, near * b.grad_norm);
  EXPECT_FALSE(a->skipped);
}

void ExpectSteps(StepRig& rig, const OneRank& expected) {
  for (int64_t step = 1; step <= kTensorSteps; ++step) {
    const HostBatch batch = rig.Batch(step);
    ExpectResult(rig.executor().TrainStep(batch, step, kTensorRate),
                 At(expected.steps, step - 1), kNearWeight);
    const auto loss = rig.executor().Evaluate(batch);
    const LossRecord& of_one = At(expected.losses, step - 1);
    ASSERT_TRUE(loss.ok()) << loss.status();
    EXPECT_NEAR(loss->loss_sum, of_one.loss_sum, kNearWeight * of_one.loss_sum);
    EXPECT_EQ(loss->tokens, of_one.tokens);
  }
  ExpectNorms(*rig.executor().WeightNorms(), expected.weight_norms,
              kNearWeight);
  for (const std::string& tensor : rig.TensorsHere()) {
    ExpectPieces(rig, expected.weights.at(tensor), tensor, Plane::kWeight,
                 kNearWeight);
  }
}

std::map<std::string, std::vector<double>> ValuesOf(StepRig& alone,
                                                    Plane plane) {
  std::map<std::string, std::vector<double>> values;
  for (const std::string& tensor : alone.Tensors()) {
    const std::vector<StepRig::Run> all = alone.Runs(tensor, plane);
    DELINK_CHECK_EQ(all.size(), size_t{1});
    values[tensor] = all.front().values;
  }
  return values;
}

HostBatch EditedBatch(const StepRig& rig, const BatchEdit& edit) {
  HostBatch batch = rig.Batch(0);
  if (edit != nullptr) edit(batch);
  return batch;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const TensorCase& of) {
  const RigOptions& o = of.options;
  return out << of.kind << ", tensor " << of.tensor
             << (of.sequence ? " with sequence" : "") << ", context "
             << of.context << ", data " << of.data << ", expert " << of.expert
             << " on " << of.expert_nodes << " nodes with room "
             << of.expert_room << (of.expert_overlap ? " and overlap" : "")
             << ", pipeline " << of.pipeline << (o.turns > 1 ? " x 2" : "")
             << ", zero " << o.zero << " of " << o.shard
             << (o.reduces_micro_batches ? " in parts" : "") << ", share "
             << of.share << (o.tied ? ", tied" : "")
             << (o.recompute ? ", recompute" : "")
             << (o.remake ? "" : ", no remake") << (o.halves ? ", halves" : "")
             << (o.masked ? ", masked" : "")
             << (o.dropout > 0 ? ", dropout" : "") << (o.muon ? ", muon" : "")
             << (o.adafactor ? ", adafactor" : "")
             << (o.lane_threads ? ", threads" : "");
}

void OnRanks(const TensorCase& of,
             const std::function<void(Communicator&)>& rank_main) {
  SCOPED_TRACE(::testing::PrintToString(of));
  OnRanks(of.ranks(), [&](Communicator& world) { rank_main(world); });
}

RigOptions OptionsOf(const TensorCase& of) {
  RigOptions options = OfKind(of.kind, of.options);
  if (options.llama.has_value()) options.llama->window = 5;
  options.dtype = DType::kF64;
  options.micro_batch = 2;
  options.global_batch = 8;
  return options;
}

std::unique_ptr<StepRig> AloneOf(Communicator& self, const TensorCase& of) {
  RigOptions options = OptionsOf(of);
  options.zero = 0;
  options.turns = 1;
  options.halves = options.lane_threads = false;
  return std::make_unique<StepRig>(self, of.share, options);
}

std::unique_ptr<StepRig> TogetherOf(Communicator& world, const TensorCase& of) {
  RigOptions options = OptionsOf(of);
  options.tensor = of.tensor;
  options.context = of.context;
  options.pipeline = of.pipeline;
  options.sequence = of.sequence;
  options.expert = of.expert;
  options.expert_room = of.expert_room;
  options.expert_overlap = of.expert_overlap;
  options.expert_nodes = of.expert_nodes;
  return std::make_unique<StepRig>(world, of.share, options);
}

OneRank::Gradients GradientsOf(StepRig& alone, const BatchEdit& edit) {
  const auto result = alone.executor().Gradients(EditedBatch(alone, edit), 1);
  DELINK_CHECK(result.ok());
  return {.result = *result,
          .norms = alone.executor().GradientNorms(),
          .values = ValuesOf(alone, Plane::kGradient)};
}

OneRank RunAlone(const TensorCase& of) {
  SelfCommunicator self;
  const std::unique_ptr<StepRig> alone = AloneOf(self, of);
  OneRank found{.gradients = GradientsOf(*alone)};
  for (int64_t step = 1; step <= kTensorSteps; ++step) {
    const HostBatch batch = alone->Batch(step);
    found.steps.push_back(
        *alone->executor().TrainStep(batch, step, kTensorRate));
    found.losses.push_back(*alone->executor().Evaluate(batch));
  }
  found.weight_norms = *alone->executor().WeightNorms();
  found.weights = ValuesOf(*alone, Plane::kWeight);
  return found;
}

void ExpectGradients(StepRig& rig, const OneRank::Gradients& expected,
                     const BatchEdit& edit) {
  ExpectResult(rig.executor().Gradients(EditedBatch(rig, edit), 1),
               expected.result, kNear);
  ExpectNorms(rig.executor().GradientNorms(), expected.norms, kNear);
  for (const std::string& tensor : rig.TensorsHere()) {
    ExpectPieces(rig, expected.values.at(tensor), tensor, Plane::kGradient,
                 kNear);
  }
}

void ExpectStepsOfOneRank(Communicator& world, const TensorCase& of,
                          const OneRank& expected) {
  const std::unique_ptr<StepRig> rig = TogetherOf(world, of);
  EXPECT_EQ(rig->device().bytes_in_use(),
            rig->executor().account().allocated());
  const int64_t allocations = rig->device().allocations();
  ExpectGradients(*rig, expected.gradients);
  ExpectSteps(*rig, expected);
  // Unless ranks had to take more room.
  if (rig->executor().expert_room() == of.expert_room) {
    EXPECT_EQ(rig->device().allocations(), allocations);
  }
  EXPECT_EQ(rig->device().bytes_in_use(),
            rig->executor().account().allocated());
  const auto found = rig->executor().Diagnose(rig->Batch(1), kTensorSteps + 1);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, "the loss itself is not finite");
}

}  // namespace delink::testing
