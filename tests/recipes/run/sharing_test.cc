// The properties that sharing and delinking must hold (docs/pseudo-to-real.md):
// numbers in brackets are theirs.
#include <gtest/gtest.h>

#include <cmath>

#include "framework/comm/self_communicator.h"
#include "framework/comm/thread_communicator.h"
#include "framework/sharing/delink.h"
#include "tests/recipes/run/step_rig.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing {
namespace {

constexpr double kLr = 1e-3;

const char* const kShares[] = {"all", "groups:2", "cycle:2",
                               "attention=all,mlp=groups:2"};

double Norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

class SharingTest
    : public ::testing::TestWithParam<std::tuple<const char*, int>> {
 protected:
  std::string share() const { return std::get<0>(GetParam()); }
  int ranks() const { return std::get<1>(GetParam()); }
};

// (ii) The shared gradient equals the sum of the gradients of an untied copy;
// (i) whose loss is the same to the bit.
TEST_P(SharingTest, GradientIsTheSumOverAnUntiedCopy) {
  const absl::Status status = RunRanks(ranks(), [&](Communicator& comm) {
    StepRig pseudo(comm, share(), {.micro_batch = 1});
    StepRig real(comm, "none", {.micro_batch = 1});
    EXPECT_TRUE(
        Delink(pseudo.store(), real.store(), StatePolicy::kReset, comm).ok());
    const HostBatch batch = pseudo.Batch(1);
    const StepResult a = *pseudo.executor().TrainStep(batch, 1, 0);
    const StepResult b = *real.executor().TrainStep(batch, 1, 0);
    EXPECT_EQ(a.loss, b.loss);
    for (const LogicalTensor& t : pseudo.store().logical_tensors()) {
      if (t.link.empty()) continue;
      if (t.permanent) continue;
      // Every tensor of a set has the same shared gradient: sum its members.
      std::vector<double> sum;
      for (const LogicalTensor& other : pseudo.store().logical_tensors()) {
        if (other.name != t.link && other.link != t.link) continue;
        const std::vector<float> g = real.Gradient(other.name);
        sum.resize(g.size());
        for (size_t i = 0; i < g.size(); ++i) sum[i] += g[i];
      }
      const std::vector<float> shared = pseudo.Gradient(t.name);
      std::vector<double> difference(sum.size());
      for (size_t i = 0; i < sum.size(); ++i) {
        difference[i] = shared[i] - sum[i];
      }
      // Sums of a few hundred terms in another order.
      EXPECT_LT(Norm(difference), 1e-5 * Norm(sum) + 1e-5) << t.name;
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << std::string(status.message());
}

// (i) over a whole run, with training before the switch and state carried on.
TEST_P(SharingTest, DelinkingPreservesTheLossBitForBit) {
  TinyRuns runs;
  std::string set = "stage.0.share=\"" + share() + "\"";
  if (share().find('=') != std::string::npos) {
    set = "stage.0.share={attention=\"all\",mlp=\"groups:2\"}";
  }
  const absl::Status status =
      runs.Run({.ranks = ranks(), .sets = {set}, .out = "run"});
  ASSERT_TRUE(status.ok()) << std::string(status.message());
  const std::vector<Switch> switches = runs.Switches("run");
  ASSERT_EQ(switches.size(), 1);
  EXPECT_EQ(switches[0].loss_before, switches[0].loss_after);
  EXPECT_GT(switches[0].loss_before, 0);
}

INSTANTIATE_TEST_SUITE_P(Shares, SharingTest,
                         ::testing::Combine(::testing::ValuesIn(kShares),
                                            ::testing::Values(1, 4)));

// (iii) A pseudo step moves, reduces and updates 1/L of the weight bytes.
TEST(Sharing, PseudoStateIsOneLayers) {
  SelfCommunicator comm;
  constexpr int64_t kLayers = 6;
  StepRig pseudo(comm, "all", {.layers = kLayers});
  StepRig real(comm, "none", {.layers = kLayers});
  const auto block_bytes = [](const StepRig& rig, Plane plane) {
    int64_t bytes = 0;
    ParamStore& store = const_cast<StepRig&>(rig).store();
    for (const Slab& slab : store.slabs()) {
      const bool block = slab.leader >= 1 && slab.leader <= store.blocks();
      if (block) bytes += slab.elements * SizeOf(store.dtype(plane));
    }
    return bytes;
  };
  for (const Plane plane :
       {Plane::kWeight, Plane::kGradient, Plane::kState0, Plane::kState1}) {
    EXPECT_EQ(block_bytes(pseudo, plane) * kLayers, block_bytes(real, plane));
  }
  // What is reduced and updated is what the program says.
  const auto count = [](StepRig& rig, Op op) {
    int64_t n = 0;
    for (const Instruction& at : rig.executor().program().instructions) {
      if (at.op != op) continue;
      const Slab& slab = rig.store().slabs()[static_cast<size_t>(at.slab)];
      const bool block =
          slab.leader >= 1 && slab.leader <= rig.store().blocks();
      if (block) n += slab.elements;
    }
    return n;
  };
  EXPECT_EQ(count(pseudo, Op::kReduce) * kLayers, count(real, Op::kReduce));
  EXPECT_EQ(count(pseudo, Op::kUpdate) * kLayers, count(real, Op::kUpdate));
  EXPECT_GT(count(pseudo, Op::kUpdate), 0);
}

// (v) The trap: after `copy` the steps collapse, after `scale` they do not.
// Layers that agree (their gradients at the switch are the shared one's parts),
// beta2 = 0.999, no clipping.
class TrapTest : public ::testing::Test {
 protected:
  static constexpr int64_t kLayers = 12;
  static constexpr int64_t kPseudoSteps = 60;
  static constexpr int64_t kRealSteps = 40;

  // Loss on the training batch kRealSteps after the switch, and at it.
  struct Outcome {
    double at_switch = 0, end = 0, highest = 0;
  };
  Outcome Go(StatePolicy policy) {
    SelfCommunicator comm;
    const RigOptions options{
        .layers = kLayers, .adamw = {.beta1 = 0.9, .beta2 = 0.999, .decay = 0}};
    StepRig pseudo(comm, "all", options);
    StepRig real(comm, "none", options);
    const HostBatch batch = pseudo.Batch(1);
    Outcome outcome;
    for (int64_t step = 1; step <= kPseudoSteps; ++step) {
      EXPECT_FALSE(pseudo.executor().TrainStep(batch, step, 1e-4)->skipped);
    }
    EXPECT_TRUE(Delink(pseudo.store(), real.store(), policy, comm).ok());
    for (int64_t i = 1; i <= kRealSteps; ++i) {
      const StepResult r =
          *real.executor().TrainStep(batch, kPseudoSteps + i, kLr);
      if (i == 1) outcome.at_switch = r.loss;
      outcome.highest = std::max(outcome.highest, r.loss);
      outcome.end = r.loss;
    }
    return outcome;
  }
};

TEST_F(TrapTest, CopyStallsAndScaleDoesNot) {
  const Outcome copy = Go(StatePolicy::kCopy);
  const Outcome scale = Go(StatePolicy::kScale);
  EXPECT_EQ(copy.at_switch, scale.at_switch);
  const double copied = copy.at_switch - copy.end;
  const double scaled = scale.at_switch - scale.end;
  // Memorising one batch: the stall loses most of the progress.
  EXPECT_GT(scaled, 2 * copied);
  // No spike with `scale`.
  EXPECT_LT(scale.highest, 1.1 * scale.at_switch);
}

}  // namespace
}  // namespace delink::testing
