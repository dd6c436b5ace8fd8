// Norms of gradients and weights by slab, against whole tensors and over ranks.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/base/at.h"
#include "framework/base/mutex.h"
#include "framework/comm/self_communicator.h"
#include "tests/recipes/run/step_rig.h"
#include "tests/testing/on_ranks.h"

namespace delink::testing::slab_norms_test {
namespace {

using Norms = std::vector<double>;

Norms WeightNorms(StepRig& rig) {
  const absl::StatusOr<Norms> norms = rig.executor().WeightNorms();
  EXPECT_TRUE(norms.ok()) << norms.status();
  return norms.value_or(Norms());
}

// From the tensors themselves, one after the other.
template <typename Read>
Norms FromTensors(StepRig& rig, double divisor, const Read& read) {
  Norms squares(rig.store().slabs().size(), 0);
  for (const LogicalTensor& t : rig.store().layout().tensors()) {
    if (!t.link.empty()) continue;
    for (const float x : read(t.name)) {
      At(squares, t.slab) += double{x} * x;
    }
  }
  for (double& norm : squares) norm = std::sqrt(norm) / divisor;
  return squares;
}

void ExpectNear(const Norms& a, const Norms& b, double relative) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i], b[i], relative * b[i]) << "slab " << i;
  }
}

class SlabNormsTest
    : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(SlabNormsTest, AreThoseOfTheTensors) {
  const auto& [kind, share] = GetParam();
  SelfCommunicator comm;
  // Clipping comes after.
  StepRig rig(comm, share, OfKind(kind, {.clip = 1e-3}));
  const auto step = rig.executor().TrainStep(rig.Batch(1), 1, 1e-2);
  ASSERT_TRUE(step.ok()) << step.status();
  const Norms gradients =
      FromTensors(rig, static_cast<double>(step->tokens),
                  [&](const std::string& name) { return rig.Gradient(name); });
  const Norms weights = FromTensors(
      rig, 1, [&](const std::string& name) { return rig.Weight(name); });
  // Sums of some thousand squares in double, in another order.
  constexpr double kRounding = 1e-12;
  ExpectNear(rig.executor().GradientNorms(), gradients, kRounding);
  ExpectNear(WeightNorms(rig), weights, kRounding);
  // The step's own sums are still there.
  ExpectNear(rig.executor().GradientNorms(), gradients, kRounding);
  double squares = 0;
  for (const double norm : gradients) squares += norm * norm;
  EXPECT_NEAR(std::sqrt(squares), step->grad_norm, kRounding * step->grad_norm);
}

INSTANTIATE_TEST_SUITE_P(
    Shares, SlabNormsTest,
    ::testing::Combine(::testing::ValuesIn(kModelKinds),
                       ::testing::Values("all", "none", "mlp=all", "cycle:2")));

// At the start, and after some steps; the same on every rank.
std::pair<Norms, Norms> NormsOn(int ranks, int zero, DType dtype) {
  std::pair<Norms, Norms> norms;
  Mutex mutex;
  OnRanks(ranks, [&](Communicator& comm) {
    StepRig rig(comm, "groups:2",
                {.dtype = dtype, .lane_threads = true, .zero = zero});
    const Norms start = WeightNorms(rig);
    for (int64_t step = 1; step <= 3; ++step) {
      EXPECT_TRUE(rig.executor().TrainStep(rig.Batch(step), step, 1e-3).ok());
    }
    const Norms end = WeightNorms(rig);
    const MutexLock lock(mutex);
    if (norms.first.empty()) norms = {start, end};
    EXPECT_EQ(norms, std::pair(start, end));
  });
  return norms;
}

class WeightNormsTest : public ::testing::TestWithParam<DType> {};

// In bf16 the norms are those of the master, which is f32.
TEST_P(WeightNormsTest, AreTheSameOverRanksAndShards) {
  const auto [start, end] = NormsOn(1, 0, GetParam());
  EXPECT_EQ(start, NormsOn(1, 0, DType::kF32).first);
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    const auto [whole_start, whole_end] = NormsOn(ranks, 0, GetParam());
    const auto [sharded_start, sharded_end] = NormsOn(ranks, 2, GetParam());
    EXPECT_EQ(whole_start, start);
    EXPECT_EQ(sharded_start, start);
    EXPECT_EQ(sharded_end, whole_end);
    // The gradients were summed in another order.
    ExpectNear(whole_end, end, GetParam() == DType::kF32 ? 1e-5 : 1e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, WeightNormsTest,
                         ::testing::Values(DType::kF32, DType::kBF16));

}  // namespace
}  // namespace delink::testing::slab_norms_test
