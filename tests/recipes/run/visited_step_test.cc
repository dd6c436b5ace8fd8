// Steps of a stage that visits some blocks of a model are those of a model that
// has no others, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "framework/comm/self_communicator.h"
#include "tests/framework/module/plain_values.h"
#include "tests/recipes/run/step_rig.h"
#include "tests/testing/on_ranks.h"

namespace delink::testing::visited_step_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kLr = 1e-3;
constexpr int64_t kSteps = 20;

RigOptions Visiting(RigOptions options) {
  options.layers = 5;
  options.visited = {0, 2, 4};
  return options;
}

RigOptions Only(RigOptions options) {
  options.only_visited = true;
  return options;
}

void ExpectSameStep(const StepResult& a, const StepResult& b) {
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.grad_norm, b.grad_norm);
  EXPECT_EQ(a.tokens, b.tokens);
}

void ExpectSameAgreement(const std::vector<SlabAgreement>& a,
                         const std::vector<SlabAgreement>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].slab, b[i].slab);
    EXPECT_EQ(a[i].sharers, b[i].sharers);
    EXPECT_EQ(a[i].of.together, b[i].of.together);
    EXPECT_EQ(a[i].of.apart, b[i].of.apart);
  }
}

// Twenty steps, half of them behind a switch that cuts what is shared, and all
// other passes.
void ExpectSameRuns(Communicator& comm, StepRig& a, StepRig& b,
                    const RigOptions& options) {
  EXPECT_EQ(a.executor().program(), b.executor().program());
  EXPECT_EQ(a.executor().account().total(), b.executor().account().total());
  EXPECT_EQ(a.executor().flops_per_micro_batch(),
            b.executor().flops_per_micro_batch());
  ASSERT_EQ(a.Tensors(), b.Tensors());
  for (int64_t step = 1; step <= kSteps; ++step) {
    SCOPED_TRACE(step);
    const HostBatch batch = a.Batch(step);
    if (step == kSteps / 2) {
      if (options.probes) {
        ExpectSameAgreement(*a.executor().Probe(batch, step),
                            *b.executor().Probe(batch, step));
      }
      a.Switch("none", StatePolicy::kScale);
      b.Switch("none", StatePolicy::kScale);
    }
    ExpectSameStep(*a.executor().TrainStep(batch, step, kLr),
                   *b.executor().TrainStep(batch, step, kLr));
  }
  const HostBatch batch = a.Batch(99);
  EXPECT_EQ(a.executor().Evaluate(batch)->loss_sum,
            b.executor().Evaluate(batch)->loss_sum);
  ExpectSameStep(*a.executor().Gradients(batch, 99),
                 *b.executor().Gradients(batch, 99));
  EXPECT_EQ(a.executor().GradientNorms(), b.executor().GradientNorms());
  EXPECT_EQ(*a.executor().WeightNorms(), *b.executor().WeightNorms());
  if (comm.size() > 1 && options.zero > 0) return;  // not whole here
  for (const std::string& name : a.Tensors()) {
    EXPECT_EQ(a.Master(name), b.Master(name)) << name;
    EXPECT_EQ(a.Moment(name, 1), b.Moment(name, 1)) << name;
  }
}

class VisitedStepTest : public ::testing::TestWithParam<const char*> {
 protected:
  void Expect(int ranks, const std::string& share, RigOptions options) {
    options = OfKind(GetParam(), options);
    OnRanks(ranks, [&](Communicator& comm) {
      StepRig many(comm, share, options);
      StepRig few(comm, share, Only(options));
      EXPECT_EQ(many.model().blocks(), 5);
      EXPECT_EQ(few.model().blocks(), 3);
      ExpectSameRuns(comm, many, few, options);
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, VisitedStepTest,
                         ::testing::ValuesIn(kModelKinds));

TEST_P(VisitedStepTest, AreThoseOfAModelWithoutTheOthers) {
  for (const char* share : {"none", "all", "mlp=all"}) {
    SCOPED_TRACE(share);
    Expect(1, share, Visiting({.probes = std::string(share) != "none"}));
  }
}

TEST_P(VisitedStepTest, AlsoWithDropoutAndRecompute) {
  for (const MicroBatchOrder order :
       {MicroBatchOrder::kMicroBatchMajor, MicroBatchOrder::kLayerMajor}) {
    Expect(1, "all",
           Visiting({.recompute = true,
                     .probes = true,
                     .clip = 0.5,
                     .dropout = 0.1,
                     .order = order}));
  }
  Expect(1, "none", Visiting({.tied = false, .dropout = 0.1}));
}

TEST_P(VisitedStepTest, AlsoOverRanks) {
  for (const int zero : {0, 1, 2, 3}) {
    Expect(2, "all",
           Visiting({.lane_threads = true,
                     .probes = true,
                     .dropout = 0.1,
                     .zero = zero}));
  }
  Expect(2, "none", Visiting({.dtype = DType::kBF16, .dropout = 0.1}));
}

TEST_P(VisitedStepTest, OtherBlocksAreNotTouched) {
  SelfCommunicator comm;
  StepRig rig(comm, "none", OfKind(GetParam(), Visiting({})));
  for (const std::string& name : rig.Tensors()) {
    EXPECT_FALSE(name.starts_with("blocks/1/") || name.starts_with("blocks/3/"))
        << name;
  }
}

// By the names that the layers have in the model.
TEST_P(VisitedStepTest, NamesAreThoseOfTheModel) {
  SelfCommunicator comm;
  Trace trace(1, 1);
  StepRig rig(
      comm, "none",
      OfKind(GetParam(), Visiting({.global_batch = 2, .trace = &trace})));
  std::vector<std::string> forward;
  for (const Trace::Entry& entry : trace.programs().front()) {
    if (entry.at.op == Op::kForward) forward.push_back(entry.of);
  }
  EXPECT_THAT(forward,
              ElementsAre("embed", "blocks/0", "blocks/2", "blocks/4"));
  ParamStore& store = rig.store();
  const auto stream = store.device().NewStream();
  for (size_t s = 0; s < store.slabs().size(); ++s) {
    if (store.slabs()[s].leader != 3 || store.slabs()[s].part != "mlp")
      continue;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    testing::SetParameters(store, *stream, static_cast<int>(s), 0, 1, &nan);
  }
  const HostBatch batch = rig.Batch(1);
  EXPECT_TRUE(rig.executor().TrainStep(batch, 1, kLr)->skipped);
  EXPECT_THAT(*rig.executor().Diagnose(batch, 1),
              HasSubstr("the output of blocks/2 is not finite"));
}

}  // namespace
}  // namespace delink::testing::visited_step_test
