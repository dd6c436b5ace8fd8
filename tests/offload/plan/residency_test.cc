// What is put into programs of three layers, with a slab each, written out.
#include "offload/plan/residency.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "framework/step/plan/basic.h"
#include "framework/step/proof/validator.h"

namespace delink::residency_test {
namespace {

constexpr BasicPlanOptions kLayerMajor{.order = MicroBatchOrder::kLayerMajor};
constexpr size_t kWeights = 0, kGradients = 1, kStates = 2;

ProgramShape Small(int32_t micro_batches) {
  return {.layers = 3,
          .slabs = 3,
          .slabs_of_layer = {{0}, {1}, {2}},
          .gathers = std::vector<bool>(3, false),
          .micro_batches = micro_batches};
}

// The program as text; the validator finds nothing.
std::string With(const Program& bare) {
  const Program program = AddResidency(bare);
  const absl::Status status = ValidateProgram(program);
  EXPECT_TRUE(status.ok()) << status;
  return ToString(program);
}

TEST(Residency, NothingIsAddedWhereAllIsAtHome) {
  const Program bare = PlanStep(Small(2), {});
  EXPECT_EQ(AddResidency(bare), bare);
}

// There is room for two: what is wanted last goes.
TEST(Residency, LayerMajor) {
  ProgramShape shape = Small(2);
  shape.copy_class[kWeights] = {0, 0, 0};
  shape.copies = {2};
  EXPECT_EQ(With(PlanStep(shape, kLayerMajor)),
            "Fetch(0) F(0,a) F(0,b) Fetch(1) F(1,a) F(1,b) "
            "Release(0) Fetch(2) Loss(a) Loss(b) Reduce(2) Squares(2) "
            "B(1,a) B(1,b) Reduce(1) Squares(1) "
            "Release(2) Fetch(0) B(0,a) B(0,b) Reduce(0) Squares(0) Norm "
            "Update(0) Evict(0) Release(0) "
            "Update(1) Evict(1) Release(1) "
            "Fetch(2) Update(2) Evict(2) Release(2)");
}

TEST(Residency, MicroBatchMajor) {
  ProgramShape shape = Small(2);
  shape.copy_class[kWeights] = {0, 0, 0};
  shape.copies = {2};
  EXPECT_EQ(With(PlanStep(shape, {})),
            "Fetch(0) F(0,a) Fetch(1) F(1,a) Release(0) Fetch(2) Loss(a) "
            "B(1,a) Release(2) Fetch(0) B(0,a) "
            "F(0,b) F(1,b) Release(0) Fetch(2) Loss(b) Reduce(2) Squares(2) "
            "B(1,b) Reduce(1) Squares(1) "
            "Release(2) Fetch(0) B(0,b) Reduce(0) Squares(0) Norm "
            "Update(0) Evict(0) Release(0) "
            "Update(1) Evict(1) Release(1) "
            "Fetch(2) Update(2) Evict(2) Release(2)");
}

// State comes for its update, a gradient goes home behind its contributions and
// comes again for it.
TEST(Residency, UpdatesOnTheDevice) {
  ProgramShape shape = Small(1);
  shape.copy_class[kGradients] = {-1, 0, -1};
  shape.copy_class[kStates] = {-1, 1, 1};
  shape.copies = {1, 1};
  EXPECT_EQ(With(PlanStep(shape, {})),
            "F(0,a) F(1,a) Loss(a) Reduce(2) Squares(2) "
            "Take(1)g B(1,a) Reduce(1) Squares(1) "
            "B(0,a) Reduce(0) Squares(0) Norm Update(0) "
            "Fetch(1)s Update(1) Release(1)g Evict(1)s Release(1)s "
            "Fetch(2)s Update(2) Evict(2)s Release(2)s");
}

// What the host updates is at home by then, and nobody fetches it for that.
TEST(Residency, UpdatesOnTheHost) {
  ProgramShape shape = Small(2);
  shape.copy_class[kWeights] = {-1, 0, -1};
  shape.copy_class[kGradients] = {-1, 1, -1};
  shape.copies = {1, 1};
  shape.host_updates = {false, true, false};
  EXPECT_EQ(With(PlanStep(shape, kLayerMajor)),
            "F(0,a) F(0,b) Fetch(1) F(1,a) F(1,b) "
            "Loss(a) Loss(b) Reduce(2) Squares(2) "
            "Take(1)g B(1,a) B(1,b) Release(1) Reduce(1) Squares(1) "
            "Evict(1)g Release(1)g "
            "B(0,a) B(0,b) Reduce(0) Squares(0) Norm "
            "Update(0) Update(1) Update(2)");
}

// A gradient that ranks reduce leaves with its squares known: it comes once
// more, for its update.
TEST(Residency, SquaresBeforeAGradientLeaves) {
  ProgramShape shape = Small(2);
  shape.ranks = 2;
  shape.copy_class[kGradients] = {0, 0, 0};
  shape.copies = {2};
  EXPECT_EQ(With(PlanStep(shape, kLayerMajor)),
            "F(0,a) F(0,b) F(1,a) F(1,b) Take(2)g Loss(a) Loss(b) Reduce(2) "
            "Take(1)g B(1,a) B(1,b) Squares(2) Reduce(1) Evict(2)g Release(2)g "
            "Take(0)g B(0,a) B(0,b) Squares(1) Reduce(0) Squares(0) Norm "
            "Update(0) Release(0)g Update(1) Release(1)g "
            "Fetch(2)g Update(2) Release(2)g");
}

// Weights go home when they have come together.
TEST(Residency, GathersOfZero) {
  ProgramShape shape = Small(1);
  shape.gathers.assign(3, true);
  shape.ranks = 2;
  shape.copy_class[kWeights] = {-1, 0, -1};
  shape.copies = {1};
  EXPECT_EQ(With(PlanStep(shape, {})),
            "F(0,a) Fetch(1) F(1,a) Loss(a) Reduce(2) B(1,a) Reduce(1) B(0,a) "
            "Reduce(0) Squares(2) Squares(1) Squares(0) Norm "
            "Update(0) Gather(0) Update(1) Gather(1) Evict(1) Release(1) "
            "Update(2) Gather(2)");
}

// Two ranks with shards of all weights, and room for some whole ones.
ProgramShape Sharded(int32_t copies) {
  ProgramShape shape = Small(2);
  shape.ranks = 2;
  shape.shards.assign(3, true);
  shape.copy_class[kWeights] = {0, 0, 0};
  shape.copies = {copies};
  return shape;
}

// What the forward gathered last is kept for the backward, the rest is gathered
// again. No update finds a copy.
TEST(Residency, ShardsInLayerMajorOrder) {
  EXPECT_EQ(With(PlanStep(Sharded(2), kLayerMajor)),
            "Fetch(0) F(0,a) F(0,b) Fetch(1) F(1,a) F(1,b) "
            "Release(0) Fetch(2) Loss(a) Loss(b) Release(2) Reduce(2) "
            "B(1,a) B(1,b) Release(1) Reduce(1) "
            "Fetch(0) B(0,a) B(0,b) Release(0) Reduce(0) "
            "Squares(2) Squares(1) Squares(0) Norm "
            "Update(0) Update(1) Update(2)");
}

// A backward that runs the forward again gathers once for both.
TEST(Residency, ShardsInMicroBatchMajorOrder) {
  EXPECT_EQ(With(PlanStep(Sharded(1), {.recompute = true})),
            "Fetch(0) F(0,a) Release(0) Fetch(1) F(1,a)r Release(1) "
            "Fetch(2) Loss(a) Release(2) Fetch(1) B(1,a)r Release(1) "
            "Fetch(0) B(0,a) "
            "F(0,b) Release(0) Fetch(1) F(1,b)r Release(1) "
            "Fetch(2) Loss(b) Release(2) Reduce(2) "
            "Fetch(1) B(1,b)r Release(1) Reduce(1) "
            "Fetch(0) B(0,b) Release(0) Reduce(0) "
            "Squares(2) Squares(1) Squares(0) Norm "
            "Update(0) Update(1) Update(2)");
}

TEST(Residency, Evaluations) {
  ProgramShape shape = Small(1);
  shape.copy_class[kWeights] = {0, 0, 0};
  shape.copies = {1};
  EXPECT_EQ(With(PlanEvaluation(shape)),
            "Fetch(0) F(0,a) Release(0) Fetch(1) F(1,a) Release(1) "
            "Fetch(2) Loss(a) Release(2) Sum");
}

// Of a probe somebody reads what blocks share, and nothing else.
TEST(Residency, Probes) {
  ProgramShape shape = Small(1);
  shape.layers = 4;
  shape.slabs_of_layer = {{0}, {1}, {1}, {2}};
  shape.copy_class[kGradients] = {0, 1, -1};
  shape.copies = {1, 1};
  EXPECT_EQ(With(PlanProbe(shape, {})),
            "F(0,a) F(1,a) F(2,a) Loss(a) B(2,a)p Take(1)g Probe(2,a,1) "
            "B(1,a)p Probe(1,a,1) Evict(1)g Release(1)g "
            "Take(0)g B(0,a) Release(0)g Sum");
}

// By slab: how often its weights come.
std::vector<int> FetchesOf(const Program& program) {
  std::vector<int> fetches(static_cast<size_t>(program.shape.slabs));
  for (const Instruction& i : program.instructions) {
    if (i.op != Op::kFetch || PlaneSetOf(i) != PlaneSet::kWeight) continue;
    ++fetches[static_cast<size_t>(i.slab)];
  }
  return fetches;
}

// Forward and backward, however many micro-batches; the blocks at which a step
// turns round are still there.
TEST(Residency, LayerMajorFetchesWeightsTwiceAStep) {
  ProgramShape shape{.layers = 8, .slabs = 8, .micro_batches = 4};
  for (int32_t layer = 0; layer < shape.layers; ++layer) {
    const bool block = layer > 0 && layer + 1 < shape.layers;
    shape.slabs_of_layer.push_back({layer});
    shape.gathers.push_back(false);
    shape.copy_class[kWeights].push_back(block ? 0 : -1);
    shape.copy_class[kGradients].push_back(block ? 1 : -1);
    shape.host_updates.push_back(block);
  }
  shape.copies = {2, 2};
  EXPECT_EQ(FetchesOf(AddResidency(PlanStep(shape, kLayerMajor))),
            std::vector<int>({0, 2, 2, 2, 2, 1, 1, 0}));
  const std::vector<int> other = FetchesOf(AddResidency(PlanStep(shape, {})));
  EXPECT_GT(*std::max_element(other.begin(), other.end()), 4);
}

// Whoever plans may choose otherwise.
TEST(Residency, OneMayChooseWhatGoes) {
  ProgramShape shape = Small(1);
  shape.copy_class[kWeights] = {0, 0, 0};
  shape.copies = {2};
  const auto last = [](const std::vector<int32_t>& uses) {
    return uses.size() - 1;
  };
  const std::string text = ToString(AddResidency(PlanEvaluation(shape), last));
  EXPECT_EQ(text, With(PlanEvaluation(shape)));  // all goes as it is done with
  EXPECT_NE(ToString(AddResidency(PlanStep(shape, {}), last)),
            With(PlanStep(shape, {})));
}

}  // namespace
}  // namespace delink::residency_test
