// The basic planners write what docs/step-program.md draws, and the analysis of
// small programs is what a person finds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "framework/step/plan/assemble.h"
#include "framework/step/plan/basic.h"
#include "framework/step/plan/recompute.h"
#include "framework/step/program/dependencies.h"
#include "framework/step/program/shape_table.h"
#include "parallel/pipeline/one_f_one_b.h"
#include "parallel/pipeline/zero_bubble.h"
#include "tests/framework/step/programs.h"

namespace delink::plan_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Prologue with slab 0, two blocks sharing slab 1, epilogue with slab 2.
ProgramShape SharedBlocks(int32_t micro_batches) {
  return {.layers = 4,
          .slabs = 3,
          .slabs_of_layer = {{0}, {1}, {1}, {2}},
          .gathers = {false, false, false},
          .micro_batches = micro_batches};
}

int32_t Find(const Program& program, const std::string& text) {
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    if (ToString(program.instructions[i]) == text) {
      return static_cast<int32_t>(i);
    }
  }
  ADD_FAILURE() << "no " << text << " in " << ToString(program);
  return 0;
}

TEST(PlanTest, MicroBatchMajor) {
  EXPECT_EQ(ToString(PlanStep(SharedBlocks(2), {})),
            "F(0,a) F(1,a) F(2,a) Loss(a) B(2,a) B(1,a) B(0,a) "
            "F(0,b) F(1,b) F(2,b) Loss(b) Reduce(2) Squares(2) B(2,b) B(1,b) "
            "Reduce(1) Squares(1) B(0,b) Reduce(0) Squares(0) Norm Update(0) "
            "Update(1) Update(2)");
}

TEST(PlanTest, LayerMajor) {
  EXPECT_EQ(
      ToString(
          PlanStep(SharedBlocks(2), {.order = MicroBatchOrder::kLayerMajor})),
      "F(0,a) F(0,b) F(1,a) F(1,b) F(2,a) F(2,b) Loss(a) Loss(b) Reduce(2) "
      "Squares(2) B(2,a) B(2,b) B(1,a) B(1,b) Reduce(1) Squares(1) B(0,a) "
      "B(0,b) Reduce(0) Squares(0) Norm Update(0) Update(1) Update(2)");
}

TEST(PlanTest, GathersFollowTheirUpdates) {
  ProgramShape shape = SharedBlocks(1);
  shape.gathers = {true, false, true};
  EXPECT_EQ(ToString(PlanStep(shape, {})),
            "F(0,a) F(1,a) F(2,a) Loss(a) Reduce(2) Squares(2) B(2,a) B(1,a) "
            "Reduce(1) Squares(1) B(0,a) Reduce(0) Squares(0) Norm Update(0) "
            "Gather(0) Update(1) Update(2) Gather(2)");
}

// A lane keeps its order: squares that wait for the network would hold up the
// backward behind them.
TEST(PlanTest, SquaresOfSeveralRanksComeAfterTheBackward) {
  ProgramShape shape = SharedBlocks(1);
  shape.ranks = 2;
  EXPECT_EQ(ToString(PlanStep(shape, {})),
            "F(0,a) F(1,a) F(2,a) Loss(a) Reduce(2) B(2,a) B(1,a) Reduce(1) "
            "B(0,a) Reduce(0) Squares(2) Squares(1) Squares(0) Norm Update(0) "
            "Update(1) Update(2)");
}

TEST(PlanTest, RecomputeIsOfBlocks) {
  EXPECT_EQ(ToString(PlanStep(SharedBlocks(1), {.recompute = true})),
            "F(0,a) F(1,a)r F(2,a)r Loss(a) Reduce(2) Squares(2) B(2,a)r "
            "B(1,a)r Reduce(1) Squares(1) B(0,a) Reduce(0) Squares(0) Norm "
            "Update(0) Update(1) Update(2)");
}

// Nothing but flags changes, of blocks alone and of passes with a backward.
TEST(PlanTest, RecomputeMayBeOfSomeBlocks) {
  const ProgramShape shape = SharedBlocks(1);
  const Planner planner =
      WithRecompute(BasicPlanner({}), {true, false, true, true});
  EXPECT_EQ(ToString(planner(PassKind::kStep, shape, 0)),
            "F(0,a) F(1,a) F(2,a)r Loss(a) Reduce(2) Squares(2) B(2,a)r "
            "B(1,a) Reduce(1) Squares(1) B(0,a) Reduce(0) Squares(0) Norm "
            "Update(0) Update(1) Update(2)");
  EXPECT_EQ(planner(PassKind::kEvaluation, shape, 0), PlanEvaluation(shape));
  EXPECT_EQ(planner(PassKind::kDiagnosis, shape, 0), PlanDiagnosis(shape));
  EXPECT_EQ(WithRecompute(BasicPlanner({.recompute = true}),
                          std::vector<bool>(4))(PassKind::kProbe, shape, 0),
            PlanProbe(shape, {.recompute = true}));
  EXPECT_EQ(WithRecompute(BasicPlanner({}), {})(PassKind::kStep, shape, 0),
            PlanStep(shape, {}));
  // Of halves the first runs the forward again.
  const Planner halves =
      WithRecompute(PlannerOf(ZeroBubble, false), {false, true, true, false});
  EXPECT_EQ(halves(PassKind::kStep, shape, 0),
            PlannerOf(ZeroBubble, true)(PassKind::kStep, shape, 0));
}

TEST(PlanTest, TiedSlabIsReducedAfterThePrologue) {
  ProgramShape shape = SharedBlocks(1);
  shape.slabs_of_layer[3] = {0, 2};
  const Program program = PlanStep(shape, {});
  EXPECT_EQ(Find(program, "Reduce(0)"), Find(program, "B(0,a)") + 1);
  const Analysis analysis = AnalyzeProgram(program);
  EXPECT_THAT(analysis.written[Find(program, "Loss(a)")],
              ElementsAre(false, false));
  EXPECT_THAT(analysis.written[Find(program, "B(0,a)")], ElementsAre(true));
}

TEST(PlanTest, Evaluation) {
  const Program program = PlanEvaluation(SharedBlocks(2));
  EXPECT_EQ(ToString(program),
            "F(0,a) F(1,a) F(2,a) Loss(a) F(0,b) F(1,b) F(2,b) Loss(b) Sum");
  const Analysis analysis = AnalyzeProgram(program);
  EXPECT_THAT(analysis.slots, ElementsAre(1, 2, 1));
  EXPECT_EQ(analysis.boundaries, 0);
  for (const auto& written : analysis.written) EXPECT_THAT(written, IsEmpty());
  for (const auto& dependencies : analysis.dependencies) {
    EXPECT_THAT(dependencies, IsEmpty());
  }
}

TEST(PlanTest, ProbeTakesWhatEachBlockKeepsApart) {
  const BasicPlanOptions options{.recompute = true};
  EXPECT_EQ(ToString(PlanProbe(SharedBlocks(2), options)),
            "F(0,a) F(1,a)r F(2,a)r Loss(a) B(2,a)rp Probe(2,a,1) B(1,a)rp "
            "Probe(1,a,1) B(0,a) Sum");
  ProgramShape shape = SharedBlocks(2);
  shape.slabs = 5;
  shape.slabs_of_layer = {{0}, {1, 2}, {1, 3}, {0, 4}};
  shape.gathers.resize(5);
  const Program program = PlanProbe(shape, {});
  EXPECT_EQ(ToString(program),
            "F(0,a) F(1,a) F(2,a) Loss(a) B(2,a)p Probe(2,a,1) B(1,a)p "
            "Probe(1,a,1) B(0,a) Sum");
  // Where nobody shares there is nothing to look at.
  shape.slabs_of_layer = {{0}, {1, 2}, {3}, {0, 4}};
  EXPECT_EQ(ToString(PlanProbe(shape, {})),
            "F(0,a) F(1,a) F(2,a) Loss(a) B(2,a) B(1,a) B(0,a) Sum");
}

TEST(PlanTest, DiagnosisLooksAtWhatEachForwardGives) {
  const Program program = PlanDiagnosis(SharedBlocks(2));
  EXPECT_EQ(ToString(program),
            "F(0,a) Inspect(0,a) F(1,a) Inspect(1,a) F(2,a) Inspect(2,a) "
            "Loss(a) F(0,b) Inspect(0,b) F(1,b) Inspect(1,b) F(2,b) "
            "Inspect(2,b) Loss(b) Sum");
  const Analysis analysis = AnalyzeProgram(program);
  EXPECT_EQ(analysis.slots,
            AnalyzeProgram(PlanEvaluation(SharedBlocks(2))).slots);
}

TEST(PlanTest, GradientsAreAStepUpToItsNorm) {
  ProgramShape shape = SharedBlocks(1);
  shape.gathers = {true, true, true};
  const Program program = PlanGradients(shape, {.recompute = true});
  EXPECT_EQ(ToString(program),
            "F(0,a) F(1,a)r F(2,a)r Loss(a) Reduce(2) Squares(2) B(2,a)r "
            "B(1,a)r Reduce(1) Squares(1) B(0,a) Reduce(0) Squares(0) Norm");
  EXPECT_EQ(program.kind, PassKind::kGradients);
}

// A layer a stage.
ProgramShape ThreeStages(int32_t micro_batches) {
  return {.layers = 3,
          .slabs = 3,
          .slabs_of_layer = {{0}, {1}, {2}},
          .gathers = {false, false, false},
          .chunk_of_layer = {0, 1, 2},
          .micro_batches = micro_batches,
          .stages = 3};
}

TEST(PlanTest, OneForwardOneBackward) {
  const Planner planner = PlannerOf(OneFOneB, false);
  const auto step = [&](int32_t stage) {
    return ToString(planner(PassKind::kStep, ThreeStages(2), stage));
  };
  EXPECT_EQ(step(0),
            "F(0,a) Send(1,a) Recv(1,a)g F(0,b) Send(1,b) Recv(1,b)g B(0,a) "
            "B(0,b) Reduce(0) Squares(0) Norm Update(0)");
  EXPECT_EQ(step(1),
            "Recv(1,a) Recv(1,b) F(1,a) Send(2,a) Recv(2,a)g F(1,b) Send(2,b) "
            "Recv(2,b)g B(1,a) Send(1,a)g B(1,b) Reduce(1) Squares(1) "
            "Send(1,b)g Norm Update(1)");
  EXPECT_EQ(step(2),
            "Recv(2,a) Loss(a) Recv(2,b) Send(2,a)g Loss(b) Reduce(2) "
            "Squares(2) Send(2,b)g Norm Update(2)");
  const Program evaluation = planner(PassKind::kEvaluation, ThreeStages(2), 1);
  EXPECT_EQ(ToString(evaluation),
            "Recv(1,a) Recv(1,b) F(1,a) Send(2,a) F(1,b) Send(2,b) Sum");
  EXPECT_EQ(ToString(planner(PassKind::kDiagnosis, ThreeStages(1), 1)),
            "Recv(1,a) F(1,a) Inspect(1,a) Send(2,a) Sum");
  for (const Instruction& at : evaluation.instructions) {
    EXPECT_EQ(at.lane, ShapeTable(ThreeStages(2)).LaneOf(at));
  }
}

// A tied embedding: in one order with all else of several stages, and not in
// the way of the stage's own.
TEST(PlanTest, SlabsOfSeveralStagesComeLastAndFirst) {
  ProgramShape shape = ThreeStages(1);
  shape.slabs = 4;
  shape.slabs_of_layer = {{0, 1}, {2}, {0, 3}};
  shape.gathers = {true, true, true, true};
  const Planner planner = PlannerOf(OneFOneB, false);
  const auto step = [&](int32_t stage) {
    return ToString(planner(PassKind::kStep, shape, stage));
  };
  EXPECT_EQ(step(0),
            "Recv(1,a)g F(0,a) Send(1,a) B(0,a) Reduce(1) Squares(1) Reduce(0) "
            "Squares(0) Norm Update(0) Gather(0) Update(1) Gather(1)");
  EXPECT_EQ(step(2),
            "Recv(2,a) Loss(a) Reduce(3) Squares(3) Send(2,a)g Reduce(0) "
            "Squares(0) Norm Update(0) Gather(0) Update(3) Gather(3)");
}

// The middle one of three stages, of two layers, which share a slab.
TEST(PlanTest, ZeroBubble) {
  const ProgramShape shape{.layers = 4,
                           .slabs = 3,
                           .slabs_of_layer = {{0}, {1}, {1}, {2}},
                           .gathers = {false, false, false},
                           .chunk_of_layer = {0, 1, 1, 2},
                           .micro_batches = 2,
                           .stages = 3};
  const auto step = [&](int32_t stage, bool recompute) {
    return ToString(
        PlannerOf(ZeroBubble, recompute)(PassKind::kStep, shape, stage));
  };
  EXPECT_EQ(step(1, false),
            "Recv(1,a) Recv(1,b) F(1,a) F(2,a) Send(3,a) Recv(3,a)g F(1,b) "
            "F(2,b) Send(3,b) Recv(3,b)g BI(2,a) BI(1,a) Send(1,a)g BI(2,b) "
            "BI(1,b) Send(1,b)g BW(2,a) BW(1,a) BW(2,b) BW(1,b) Reduce(1) "
            "Squares(1) Norm Update(1)");
  EXPECT_EQ(step(1, true),
            "Recv(1,a) Recv(1,b) F(1,a)r F(2,a)r Send(3,a) Recv(3,a)g F(1,b)r "
            "F(2,b)r Send(3,b) Recv(3,b)g BI(2,a)r BI(1,a)r Send(1,a)g "
            "BI(2,b)r BI(1,b)r Send(1,b)g BW(2,a) BW(1,a) BW(2,b) BW(1,b) "
            "Reduce(1) Squares(1) Norm Update(1)");
  EXPECT_EQ(step(0, false),
            ToString(PlannerOf(OneFOneB, false)(PassKind::kStep, shape, 0)));
  EXPECT_EQ(step(2, false),
            ToString(PlannerOf(OneFOneB, false)(PassKind::kStep, shape, 2)))
      << "a loss has no halves";
}

TEST(PlanTest, HalvesOfOneStage) {
  const Planner planner = step_test::HalvesPlanner(true, 1);
  const Program program = planner(PassKind::kStep, SharedBlocks(2), 0);
  EXPECT_EQ(ToString(program),
            "F(0,a) F(1,a)r F(2,a)r Loss(a) BI(2,a)r BI(1,a)r B(0,a) "
            "F(0,b) F(1,b)r F(2,b)r Loss(b) Reduce(2) Squares(2) BI(2,b)r "
            "BI(1,b)r B(0,b) Reduce(0) Squares(0) BW(2,a) BW(1,a) BW(2,b) "
            "BW(1,b) Reduce(1) Squares(1) Norm Update(0) Update(1) Update(2)");
  // Where gradients are looked at one by one they come whole.
  EXPECT_EQ(ToString(planner(PassKind::kProbe, SharedBlocks(2), 0)),
            ToString(PlanProbe(SharedBlocks(2), {.recompute = true})));
}

TEST(PlanTest, MicroBatchesAreLetters) {
  const auto name = [](int32_t m) {
    return ToString(
        Instruction{.op = Op::kBackward, .layer = 3, .micro_batch = m});
  };
  EXPECT_EQ(name(0), "B(3,a)");
  EXPECT_EQ(name(25), "B(3,z)");
  EXPECT_EQ(name(26), "B(3,aa)");
  EXPECT_EQ(name(27), "B(3,ab)");
  EXPECT_EQ(name(26 * 27), "B(3,aaa)");
}

// In place: whoever else reads them must know on which side of it he is.
TEST(AnalysisTest, ANormWritesTheSquares) {
  const Effects effects = EffectsOf(SharedBlocks(1), {.op = Op::kNorm});
  const auto squares = [](const std::vector<Resource>& of) {
    std::vector<int32_t> slabs;
    for (const Resource& r : of) {
      if (r.kind == ResourceKind::kSquares) slabs.push_back(r.index);
    }
    return slabs;
  };
  EXPECT_THAT(squares(effects.reads), IsEmpty());
  EXPECT_THAT(squares(effects.writes), ElementsAre(0, 1, 2));
}

// What is sent is given back by the send behind it, what comes has a place one
// unit early.
TEST(AnalysisTest, PlacesOfAMiddleStage) {
  const Program program =
      PlannerOf(OneFOneB, false)(PassKind::kStep, ThreeStages(3), 1);
  const Analysis analysis = AnalyzeProgram(program);
  EXPECT_THAT(analysis.pool_of, ElementsAre(3, 1, 3));
  EXPECT_THAT(analysis.slots, ElementsAre(0, 3, 0, 2));
  EXPECT_THAT(analysis.slot_of[2], ElementsAre(0, 1, 0));
  EXPECT_THAT(analysis.boundary_of[1], ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace delink::plan_test
