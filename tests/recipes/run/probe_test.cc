// Gradients without an update, and what a probe says of layers that share,
// against an untied copy whose layers have a gradient each.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "framework/comm/self_communicator.h"
#include "framework/sharing/calibrate.h"
#include "framework/sharing/resolve.h"
#include "tests/recipes/run/step_rig.h"
#include "tests/testing/on_ranks.h"

namespace delink::testing::probe_test {
namespace {

double Square(const std::vector<float>& x) {
  return std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
}

// One micro-batch, so that a step's gradients are what a probe looks at.
RigOptions OneMicroBatch(const std::string& kind, bool recompute,
                         DType dtype = DType::kF32) {
  return OfKind(kind, {.dtype = dtype,
                       .micro_batch = 2,
                       .global_batch = 2,
                       .recompute = recompute,
                       .probes = true});
}

// {|sum g_l|^2, sum |g_l|^2} by the slab's leader, from an untied copy.
std::map<std::string, Agreement> Untied(const std::string& share,
                                        const RigOptions& options,
                                        const HostBatch& batch) {
  SelfCommunicator comm;
  StepRig rig(comm, share, options);
  std::map<std::string, std::vector<std::string>> tensors;  // by leader
  for (const LogicalTensor& t : rig.store().layout().tensors()) {
    if (!t.permanent)
      tensors[t.link.empty() ? t.name : t.link].push_back(t.name);
  }
  rig.Switch("none", StatePolicy::kReset);
  EXPECT_TRUE(rig.executor().Gradients(batch, 1).ok());
  std::map<std::string, Agreement> result;
  for (const auto& [leader, names] : tensors) {
    if (names.size() < 2) continue;
    std::vector<float> sum;
    Agreement& agreement = result[leader];
    for (const std::string& name : names) {
      const std::vector<float> g = rig.Gradient(name);
      if (sum.empty()) sum.resize(g.size());
      for (size_t i = 0; i < g.size(); ++i) sum[i] += g[i];
      agreement.apart += Square(g);
    }
    agreement.together += Square(sum);
  }
  return result;
}

class ProbeTest : public ::testing::TestWithParam<
                      std::tuple<const char*, const char*, bool, DType>> {};

TEST_P(ProbeTest, SaysWhatAnUntiedCopySays) {
  const auto& [kind, share, recompute, dtype] = GetParam();
  const RigOptions options = OneMicroBatch(kind, recompute, dtype);
  SelfCommunicator comm;
  StepRig rig(comm, share, options);
  const HostBatch batch = rig.Batch(3);
  const auto probed = rig.executor().Probe(batch, 1);
  ASSERT_TRUE(probed.ok()) << probed.status();
  Agreement expected;
  for (const auto& [leader, one] : Untied(share, options, batch)) {
    expected.together += one.together;
    expected.apart += one.apart;
  }
  const Agreement found = Sum(*probed);
  EXPECT_GT(found.apart, 0);
  EXPECT_NEAR(found.together, expected.together, 1e-4 * expected.together);
  EXPECT_NEAR(found.apart, expected.apart, 1e-4 * expected.apart);
  EXPECT_LE(Rho(*probed), 1);
  for (const SlabAgreement& slab : *probed) {
    EXPECT_LE(slab.of.together, slab.sharers * slab.of.apart * (1 + 1e-6));
  }
}

INSTANTIATE_TEST_SUITE_P(Shares, ProbeTest,
                         ::testing::Combine(::testing::ValuesIn(kModelKinds),
                                            ::testing::Values("all", "groups:2",
                                                              "cycle:2",
                                                              "mlp=all"),
                                            ::testing::Bool(),
                                            ::testing::ValuesIn(kPrecisions)));

TEST(Probe, SumsOverRanks) {
  std::vector<Agreement> alone;
  for (int rank = 0; rank < 4; ++rank) {
    SelfCommunicator self;
    StepRig rig(self, "all", OneMicroBatch("gpt", false));
    alone.push_back(Sum(*rig.executor().Probe(rig.Batch(rank), 1)));
  }
  double together = 0, apart = 0;
  for (const Agreement& one : alone) {
    together += one.together;
    apart += one.apart;
  }
  OnRanks(4, [&](Communicator& comm) {
    RigOptions options = OneMicroBatch("gpt", false);
    options.global_batch = 8;
    options.zero = 2;
    StepRig rig(comm, "all", options);
    // The batch of the rig that had this number.
    SelfCommunicator self;
    StepRig other(self, "all", OneMicroBatch("gpt", false));
    const Agreement all =
        Sum(*rig.executor().Probe(other.Batch(comm.rank()), 1));
    EXPECT_NEAR(all.together, together, 1e-9 * together);
    EXPECT_NEAR(all.apart, apart, 1e-9 * apart);
  });
}

// What a step leaves for those who look at it stays until the next one.
TEST(Probe, LeavesTheStepsNorms) {
  SelfCommunicator comm;
  RigOptions options = OneMicroBatch("gpt", false);
  options.global_batch = 4;
  StepRig rig(comm, "groups:2", options);
  ASSERT_TRUE(rig.executor().TrainStep(rig.Batch(1), 1, 1e-3).ok());
  const std::vector<double> norms = rig.executor().GradientNorms();
  EXPECT_GT(norms.front(), 0);
  ASSERT_TRUE(rig.executor().Probe(rig.Batch(2), 1).ok());
  EXPECT_EQ(rig.executor().GradientNorms(), norms);
  ASSERT_TRUE(rig.executor().Evaluate(rig.Batch(3)).ok());
  ASSERT_TRUE(rig.executor().Diagnose(rig.Batch(3), 1).ok());
  EXPECT_EQ(rig.executor().GradientNorms(), norms);
}

TEST(Gradients, AreThoseOfAStepAndNothingMoves) {
  SelfCommunicator comm;
  const RigOptions options{.clip = 0.5};
  StepRig rig(comm, "all", options), reference(comm, "all", options);
  const HostBatch batch = rig.Batch(1);
  const StepResult a = *rig.executor().Gradients(batch, 1);
  const StepResult b = *reference.executor().TrainStep(batch, 1, 0);
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.grad_norm, b.grad_norm);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_FALSE(a.skipped);
  for (const LogicalTensor& t : rig.store().layout().tensors()) {
    EXPECT_EQ(rig.Gradient(t.name), reference.Gradient(t.name));
    EXPECT_EQ(Square(rig.Moment(t.name, 0)), 0) << t.name;
  }
  for (const int64_t updates : rig.store().updates()) EXPECT_EQ(updates, 0);
}

// The median movement of the blocks' attention weights in a step, in units of
// the learning rate, soon after a switch.
double Movement(StatePolicy policy, double clip) {
  SelfCommunicator comm;
  RigOptions options{.layers = 12, .clip = clip};
  options.adamw.beta2 = 0.999;
  options.adamw.eps = 1e-14;  // clipped gradients are small
  StepRig rig(comm, "all", options);
  constexpr int64_t kBefore = 150;
  constexpr double kRate = 1e-5;  // so small that all steps see one function
  for (int64_t step = 1; step <= kBefore; ++step) {
    EXPECT_TRUE(rig.executor().TrainStep(rig.Batch(1), step, kRate).ok());
  }
  const SharingMap before = rig.store().sharing();
  rig.Switch("none", policy);
  if (policy == StatePolicy::kCalibrated) {
    Calibration calibration = Calibration::Create(
        rig.store(),
        *RelationOf(rig.store().registry(), 12, before, rig.store().sharing()),
        clip);
    for (int64_t k = 0; k < 2; ++k) {
      const StepResult result =
          *rig.executor().Gradients(rig.Batch(1), kBefore + 1 + k);
      EXPECT_TRUE(
          calibration
              .AddBatch(rig.store(), static_cast<double>(result.tokens), comm)
              .ok());
    }
    EXPECT_TRUE(calibration.Apply(rig.store(), comm).ok());
  }
  std::vector<double> moved;
  constexpr int64_t kAfter = 12;
  for (int64_t step = kBefore + 1; step <= kBefore + kAfter; ++step) {
    std::map<int, std::vector<float>> was;
    for (int l = 0; l < 12; ++l) {
      was[l] = rig.Weight("blocks/" + std::to_string(l) + "/attn/qkv/weight");
    }
    EXPECT_TRUE(rig.executor().TrainStep(rig.Batch(1), step, kRate).ok());
    for (int l = 0; l < 12; ++l) {
      const std::vector<float> now =
          rig.Weight("blocks/" + std::to_string(l) + "/attn/qkv/weight");
      for (size_t i = 0; i < now.size(); ++i) {
        // By then the first moment is of the new gradients.
        if (step <= kBefore + 4) continue;
        moved.push_back(std::abs(double{now[i]} - was[l][i]) / kRate);
      }
    }
  }
  std::nth_element(moved.begin(), moved.begin() + moved.size() / 2,
                   moved.end());
  return moved[moved.size() / 2];
}

// One batch again and again, so that the right step is about 1 throughout; not
// exactly, because a factor for each tensor does not know its elements apart.
TEST(Calibrated, NeitherStallsNorOvershoots) {
  EXPECT_NEAR(Movement(StatePolicy::kCalibrated, 0), 1, 0.2);
  EXPECT_LT(Movement(StatePolicy::kCopy, 0), 0.5);
}

TEST(Calibrated, SeesThatClippingIsAlwaysActive) {
  constexpr double kClip = 1e-3;  // far below every norm
  EXPECT_NEAR(Movement(StatePolicy::kReset, kClip), 1, 0.01);
  EXPECT_NEAR(Movement(StatePolicy::kCalibrated, kClip), 1.2, 0.2);
  EXPECT_GT(Movement(StatePolicy::kScale, kClip), 1.6);
}

}  // namespace
}  // namespace delink::testing::probe_test
