// The properties that sharing and delinking must hold (docs/pseudo-to-real.md):
// numbers in brackets are theirs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "framework/comm/self_communicator.h"
#include "tests/recipes/run/step_rig.h"
#include "tests/testing/on_ranks.h"

namespace delink::testing::sharing_step_test {
namespace {

const char* const kShares[] = {"all",     "groups:2",
                               "cycle:2", "attention=all,mlp=groups:2",
                               "mlp=all", "norm=all"};

double Norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

class SharingTest : public ::testing::TestWithParam<
                        std::tuple<const char*, const char*, int, DType>> {
 protected:
  std::string kind() const { return std::get<0>(GetParam()); }
  std::string share() const { return std::get<1>(GetParam()); }
  int ranks() const { return std::get<2>(GetParam()); }
  DType dtype() const { return std::get<3>(GetParam()); }
};

// (ii) The shared gradient equals the sum of the gradients of an untied copy;
// (i) whose loss is the same to the bit.
TEST_P(SharingTest, GradientIsTheSumOverAnUntiedCopy) {
  OnRanks(ranks(), [&](Communicator& comm) {
    StepRig rig(comm, share(),
                OfKind(kind(), {.dtype = dtype(), .micro_batch = 1}));
    const HostBatch batch = rig.Batch(1);
    // A learning rate of 0 leaves gradients and changes nothing.
    const StepResult a = *rig.executor().TrainStep(batch, 1, 0);
    const std::vector<LogicalTensor> tensors = rig.store().layout().tensors();
    std::map<std::string, std::vector<float>> shared;
    for (const LogicalTensor& t : tensors) {
      if (!t.link.empty() && !t.permanent)
        shared[t.link] = rig.Gradient(t.name);
    }
    EXPECT_FALSE(shared.empty());
    rig.Switch("none", StatePolicy::kReset);
    const StepResult b = *rig.executor().TrainStep(batch, 1, 0);
    EXPECT_EQ(a.loss, b.loss);
    for (const auto& [leader, gradient] : shared) {
      std::vector<double> difference(gradient.begin(), gradient.end());
      std::vector<double> sum(gradient.size());
      for (const LogicalTensor& t : tensors) {
        if (t.name != leader && t.link != leader) continue;
        const std::vector<float> g = rig.Gradient(t.name);
        for (size_t i = 0; i < g.size(); ++i) {
          sum[i] += g[i];
          difference[i] -= g[i];
        }
      }
      // Sums of a few hundred terms in another order.
      EXPECT_LT(Norm(difference), 1e-5 * Norm(sum) + 1e-5) << leader;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Shares, SharingTest,
                         ::testing::Combine(::testing::ValuesIn(kModelKinds),
                                            ::testing::ValuesIn(kShares),
                                            ::testing::Values(1, 4),
                                            ::testing::ValuesIn(kPrecisions)));

// With experts in place of MLPs, and an auxiliary loss.
INSTANTIATE_TEST_SUITE_P(
    Experts, SharingTest,
    ::testing::Combine(
        ::testing::Values("moe"),
        ::testing::Values("all", "experts=groups:2", "router=cycle:2",
                          "experts=all,router=groups:2,shared_experts=cycle:2",
                          "attention=all,norm=all,shared_experts=all"),
        ::testing::Values(1, 4), ::testing::ValuesIn(kPrecisions)));

class SharedStateTest : public ::testing::TestWithParam<const char*> {};

// (iii) A pseudo step moves, reduces and updates 1/L of the weight bytes.
TEST_P(SharedStateTest, PseudoStateIsOneLayers) {
  SelfCommunicator comm;
  constexpr int64_t kLayers = 6;
  const RigOptions options = OfKind(GetParam(), {.layers = kLayers});
  StepRig pseudo(comm, "all", options);
  StepRig real(comm, "none", options);
  const auto block_bytes = [](const StepRig& rig, Plane plane) {
    int64_t bytes = 0;
    ParamStore& store = const_cast<StepRig&>(rig).store();
    for (const Slab& slab : store.slabs()) {
      const bool block = slab.leader >= 1 && slab.leader <= store.blocks();
      if (block)
        bytes += slab.elements * SizeOf(store.TypeOf(plane, slab.exact));
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
      const Slab& slab = rig.store().slab(at.slab);
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

INSTANTIATE_TEST_SUITE_P(Kinds, SharedStateTest,
                         ::testing::ValuesIn(kModelKinds));

// (v) The trap: after `copy` steps collapse, after `scale` they do not. One
// batch and a learning rate so small that gradients stay what they are; at
// initialisation branches hardly matter, so that all layers' projections back
// into the residual stream have the same gradient: layers agree, which is what
// `scale` is exact for. Then a normal step of Adam moves by the learning rate.
class TrapTest : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr int64_t kLayers = 12;
  static constexpr int64_t kPseudoSteps = 60;
  static constexpr int64_t kRealSteps = 50;
  static constexpr double kSmallLr = 1e-6;

  struct Outcome {
    double step_size = 0;  // median, over the learning rate, of the last step
    double progress = 0;   // fall of the loss since the switch
    double spike = 0;      // highest loss over the loss at the switch
  };
  static Outcome Go(StatePolicy policy) {
    SelfCommunicator comm;
    StepRig rig(comm, "all",
                OfKind(GetParam(),
                       {.layers = kLayers,
                        .adamw = {.beta1 = 0.9, .beta2 = 0.999, .decay = 0}}));
    const HostBatch batch = rig.Batch(1);
    for (int64_t step = 1; step <= kPseudoSteps; ++step) {
      EXPECT_TRUE(rig.executor().TrainStep(batch, step, kSmallLr).ok());
    }
    rig.Switch("none", policy);
    const std::string tensor = "blocks/5/mlp/down/weight";
    Outcome outcome;
    double first = 0, last = 0, highest = 0;
    std::vector<float> before;
    for (int64_t i = 1; i <= kRealSteps; ++i) {
      before = rig.Weight(tensor);
      last = rig.executor().TrainStep(batch, kPseudoSteps + i, kSmallLr)->loss;
      if (i == 1) first = last;
      highest = std::max(highest, last);
    }
    std::vector<double> moved;
    const std::vector<float> after = rig.Weight(tensor);
    for (size_t i = 0; i < after.size(); ++i) {
      moved.push_back(std::abs(double{after[i]} - before[i]) / kSmallLr);
    }
    std::nth_element(moved.begin(), moved.begin() + moved.size() / 2,
                     moved.end());
    return {.step_size = moved[moved.size() / 2],
            .progress = first - last,
            .spike = highest / first};
  }
};

TEST_P(TrapTest, CopyStallsAndScaleDoesNot) {
  const Outcome copy = Go(StatePolicy::kCopy);
  const Outcome scale = Go(StatePolicy::kScale);
  const Outcome reset = Go(StatePolicy::kReset);
  EXPECT_LT(copy.step_size, 0.3);
  EXPECT_GT(scale.step_size, 0.8);
  EXPECT_LT(scale.step_size, 1.2);
  EXPECT_GT(reset.step_size, 0.8);
  EXPECT_GT(scale.progress, 2 * copy.progress);
  EXPECT_LE(scale.spike, 1.0);
}

INSTANTIATE_TEST_SUITE_P(Kinds, TrapTest, ::testing::ValuesIn(kModelKinds));

}  // namespace
}  // namespace delink::testing::sharing_step_test
