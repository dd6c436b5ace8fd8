#include "tests/recipes/run/pipeline_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "tests/recipes/run/late_watch.h"

namespace delink::testing {
namespace {

constexpr double kLr = 1e-3;
constexpr int64_t kSteps = 5;

void ExpectSameResult(const StepResult& a, const StepResult& b) {
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.grad_norm, b.grad_norm);
  EXPECT_FALSE(a.skipped);
  EXPECT_FALSE(b.skipped);
}

// Where both ranks have values of the tensor.
void ExpectSameRuns(const StepRig& rig, const StepRig& without,
                    const std::string& tensor, Plane plane) {
  std::map<int64_t, double> expected;
  for (const StepRig::Run& run : without.Runs(tensor, plane)) {
    for (size_t i = 0; i < run.values.size(); ++i) {
      expected[run.first + static_cast<int64_t>(i)] = run.values[i];
    }
  }
  for (const StepRig::Run& run : rig.Runs(tensor, plane)) {
    for (size_t i = 0; i < run.values.size(); ++i) {
      const auto at = expected.find(run.first + static_cast<int64_t>(i));
      if (at == expected.end()) continue;
      ASSERT_EQ(run.values[i], at->second) << tensor << " " << at->first;
    }
  }
}

void ExpectSameGradients(StepRig& rig, StepRig& without) {
  const HostBatch batch = rig.Batch(0);
  const auto a = rig.executor().Gradients(batch, 1);
  const auto b = without.executor().Gradients(batch, 1);
  ASSERT_TRUE(a.ok()) << a.status();
  ExpectSameResult(*a, *b);
  EXPECT_EQ(rig.executor().GradientNorms(), without.executor().GradientNorms());
  for (const std::string& name : rig.TensorsHere()) {
    ExpectSameRuns(rig, without, name, Plane::kGradient);
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
    ExpectSameRuns(rig, without, name, Plane::kWeight);
  }
}

constexpr double kNear = 2e-5;

void ExpectNearResult(const StepResult& a, const StepResult& b) {
  EXPECT_NEAR(a.loss, b.loss, kNear * b.loss);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_NEAR(a.grad_norm, b.grad_norm, kNear * b.grad_norm);
}

void ExpectNearGradients(StepRig& rig, StepRig& without) {
  const HostBatch batch = rig.Batch(0);
  const auto a = rig.executor().Gradients(batch, 1);
  const auto b = without.executor().Gradients(batch, 1);
  ASSERT_TRUE(a.ok()) << a.status();
  EXPECT_EQ(a->loss, b->loss);  // forward is the same
  ExpectNearResult(*a, *b);
  const std::vector<double> norms = rig.executor().GradientNorms();
  const std::vector<double> expected = without.executor().GradientNorms();
  ASSERT_EQ(norms.size(), expected.size());
  for (size_t i = 0; i < norms.size(); ++i) {
    EXPECT_NEAR(norms[i], expected[i], kNear * expected[i]);
  }
}

// With a rate of 0: weights stay the same.
void ExpectSameLoss(StepRig& rig, StepRig& without, int64_t step) {
  const HostBatch batch = rig.Batch(step);
  const auto a = rig.executor().TrainStep(batch, step, 0);
  const auto b = without.executor().TrainStep(batch, step, 0);
  ASSERT_TRUE(a.ok()) << a.status();
  EXPECT_EQ(a->loss, b->loss);
}

void ExpectNearSteps(StepRig& rig, StepRig& without) {
  for (int64_t step = 1; step <= kSteps; ++step) {
    const HostBatch batch = rig.Batch(step);
    const auto a = rig.executor().TrainStep(batch, step, kLr);
    ASSERT_TRUE(a.ok()) << a.status();
    ExpectNearResult(*a, *without.executor().TrainStep(batch, step, kLr));
    const auto loss = rig.executor().Evaluate(batch);
    const auto expected = without.executor().Evaluate(batch);
    ASSERT_TRUE(loss.ok()) << loss.status();
    EXPECT_NEAR(loss->loss_sum, expected->loss_sum, kNear * expected->loss_sum);
  }
}

// Whether the slab's gradients are added up in another order than without.
bool IsOfSeveralStages(StepRig& rig, const PipelineCase& of, int slab) {
  const Layout& layout = rig.store().layout();
  return static_cast<int>(At(layout.local_slabs(), slab).group->size()) >
         of.data;
}

void ExpectSameProbe(Communicator& world, const PipelineCase& of, StepRig& rig,
                     StepRig& without, int64_t step) {
  const HostBatch batch = rig.Batch(step);
  const auto probed = rig.executor().Probe(batch, step);
  const auto expected = without.executor().Probe(batch, step);
  ASSERT_TRUE(probed.ok()) << probed.status();
  ASSERT_EQ(probed->size(), expected->size());
  ASSERT_FALSE(probed->empty());
  for (size_t i = 0; i < probed->size(); ++i) {
    const SlabAgreement &a = (*probed)[i], &b = (*expected)[i];
    EXPECT_EQ(a.slab, b.slab);
    EXPECT_EQ(a.sharers, b.sharers);
    EXPECT_GT(b.of.apart, 0);
    if (!IsOfSeveralStages(rig, of, a.slab)) {
      EXPECT_EQ(a.of.together, b.of.together);
      EXPECT_EQ(a.of.apart, b.of.apart);
      continue;
    }
    // The squares are the same ones.
    EXPECT_NEAR(a.of.apart, b.of.apart, 1e-13 * b.of.apart);
    const double near = of.options.bf16_gradients ? 0.02 : kNear;
    EXPECT_NEAR(a.of.together, b.of.together, near * b.of.together);
    const double told = a.of.together;
    EXPECT_EQ(*AllReduceScalar(world, told, ReduceOp::kMax), told);
    EXPECT_EQ(*AllReduceScalar(world, told, ReduceOp::kMin), told);
  }
}

// Of the ranks that have all of a tensor.
bool AllHaveTheSame(Communicator& world, StepRig& rig,
                    const std::string& tensor) {
  const std::vector<std::string> here = rig.TensorsHere();
  uint64_t bits = 0;
  bool has = std::find(here.begin(), here.end(), tensor) != here.end();
  for (const LogicalTensor& t : rig.store().layout().tensors()) {
    if (!has || t.name != tensor) continue;
    const int slab = rig.store().LocalSlabsOf(t.slab).front();
    has = !rig.store().placement(slab).weight.sharded;
  }
  if (has) {
    for (const float x : rig.Weight(tensor)) {
      bits = bits * 31 + std::bit_cast<uint32_t>(x);
    }
  }
  using Limits = std::numeric_limits<int64_t>;
  const auto mine = static_cast<int64_t>(bits);
  return *AllReduceScalar(world, has ? mine : Limits::min(), ReduceOp::kMax) ==
         *AllReduceScalar(world, has ? mine : Limits::max(), ReduceOp::kMin);
}

// A pipeline, and beside it on each stage its data ranks by themselves.
class Pair {
 public:
  Pair(Communicator& world, const PipelineCase& of)
      : stage_(*world.Split(world.rank() / of.data, world.rank() % of.data)),
        watch_(world.rank()) {
    DELINK_CHECK_EQ(world.size(), of.ranks());
    RigOptions options = OfKind(of.kind, of.options);
    options.micro_batch = 2;
    options.global_batch = of.data * of.micro_batches * options.micro_batch;
    if (!options.reduces_micro_batches) options.zero = 0;
    without_ = std::make_unique<StepRig>(*stage_, of.share, options);
    options.zero = of.options.zero;
    options.pipeline = of.pipeline;
    options.turns = of.turns;
    if (of.delays) options.watch = &watch_;
    with_ = std::make_unique<StepRig>(world, of.share, options);
    allocations_ = with_->device().allocations();
    EXPECT_EQ(with_->executor().flops_per_micro_batch(),
              without_->executor().flops_per_micro_batch());
    EXPECT_EQ(with_->device().bytes_in_use(),
              with_->executor().account().allocated());
  }

  StepRig& with() { return *with_; }
  StepRig& without() { return *without_; }

  void Finish() {
    EXPECT_EQ(with_->device().allocations(), allocations_);
    const auto found = with_->executor().Diagnose(with_->Batch(1), kSteps + 1);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(*found, "the loss itself is not finite");
  }

 private:
  std::unique_ptr<Communicator> stage_;
  LateWatch watch_;
  std::unique_ptr<StepRig> without_, with_;
  int64_t allocations_ = 0;
};

}  // namespace

std::ostream& operator<<(std::ostream& out, const PipelineCase& of) {
  const RigOptions& o = of.options;
  return out << of.kind << ", pipeline " << of.pipeline << " x " << of.turns
             << ", data " << of.data << ", micro-batches " << of.micro_batches
             << ", layers " << o.layers << ", zero " << o.zero
             << (o.reduces_micro_batches ? " in parts, " : ", ")
             << ToString(o.dtype)
             << (o.bf16_gradients ? ", bf16 gradients" : "")
             << (o.halves ? ", halves" : "")
             << (o.recompute ? ", recompute" : "")
             << (o.lane_threads ? ", threads" : "")
             << (o.masked ? ", masked" : "") << (o.tied ? ", tied" : "")
             << ", share " << of.share << (o.muon ? ", muon" : "")
             << (o.dropout > 0 ? ", dropout" : "")
             << (of.delays ? ", delays" : "");
}

void ExpectStepsAsWithout(Communicator& world, const PipelineCase& of) {
  Pair pair(world, of);
  ExpectSameGradients(pair.with(), pair.without());
  ExpectSameSteps(pair.with(), pair.without());
  pair.Finish();
}

void ExpectProbesAsWithout(Communicator& world, const PipelineCase& of) {
  PipelineCase probes = of;
  probes.options.probes = true;
  Pair pair(world, probes);
  for (int64_t step = 1; step <= 2; ++step) {
    ExpectSameProbe(world, of, pair.with(), pair.without(), step);
    ExpectSameLoss(pair.with(), pair.without(), step);
  }
  pair.Finish();
}

void ExpectStepsNearThoseWithout(Communicator& world, const PipelineCase& of) {
  Pair pair(world, of);
  ExpectNearGradients(pair.with(), pair.without());
  ExpectNearSteps(pair.with(), pair.without());
  for (const std::string& name : pair.with().Tensors()) {
    EXPECT_TRUE(AllHaveTheSame(world, pair.with(), name)) << name;
  }
  pair.Finish();
}

}  // namespace delink::testing
