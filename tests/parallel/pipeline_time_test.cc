#include "parallel/pipeline/pipeline_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "framework/step/plan/assemble.h"
#include "framework/step/proof/well_formed.h"
#include "parallel/pipeline/interleaved.h"
#include "parallel/pipeline/one_f_one_b.h"
#include "parallel/pipeline/zero_bubble.h"

namespace delink::pipeline_time_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::SizeIs;

// A block a chunk, the prologue and the epilogue at the ends.
std::vector<Program> PlanStages(const StageSchedule& schedule, int32_t stages,
                                int32_t chunks, int32_t micro_batches) {
  ProgramShape shape{.layers = chunks + 2,
                     .slabs = chunks + 2,
                     .gathers = std::vector<bool>(chunks + 2, true),
                     .micro_batches = micro_batches,
                     .ranks = 2,
                     .stages = stages};
  shape.chunk_of_layer = {0};
  for (int32_t c = 0; c < chunks; ++c) shape.chunk_of_layer.push_back(c);
  shape.chunk_of_layer.push_back(chunks - 1);
  for (int32_t l = 0; l < shape.layers; ++l)
    shape.slabs_of_layer.push_back({l});
  EXPECT_TRUE(CheckShape(shape).ok());
  std::vector<Program> programs;
  for (int32_t stage = 0; stage < stages; ++stage) {
    programs.push_back(
        PlannerOf(schedule, false)(PassKind::kStep, shape, stage));
  }
  return programs;
}

// Each block takes `unit`, its backward twice as long; the ends take nothing.
VisitCosts Equal(double unit, int32_t blocks) {
  return [=](const Instruction& at) -> VisitCost {
    if (at.layer < 1 || at.layer > blocks) return {};
    switch (at.op) {
      case Op::kForward:
        return {.forward = unit};
      case Op::kBackward:
        return {.backward = 2 * unit};
      case Op::kBackwardInput:
      case Op::kBackwardWeight:
        return {.backward = unit};
      default:
        return {};
    }
  };
}

std::vector<std::string> Picture(const StageSchedule& schedule, int32_t stages,
                                 int32_t chunks, int32_t micro_batches) {
  return DrawPipeline(
      TimePipeline(PlanStages(schedule, stages, chunks, micro_batches),
                   Equal(0.1, chunks)),
      96);
}

TEST(PipelineTimeTest, PicturesOfTheSchedules) {
  EXPECT_THAT(Picture(OneFOneB, 3, 3, 5),
              ElementsAre("abc....AAdBBeCC.DD.EE",  //
                          ".ab..AAcBBdCCeDD.EE..",  //
                          "..aAAbBBcCCdDDeEE...."));
  EXPECT_THAT(Picture(ZeroBubble, 3, 3, 5),
              ElementsAre("abc..AAdBBeCCDDEE",  //
                          ".ab.AcB'dC'eD'E''",  //
                          "..aAbBcC'dD'eE'''"));
  EXPECT_THAT(Picture(Interleaved, 2, 4, 4),
              ElementsAre("ababc.AAdBBcAAdBB.CC.DDCCDD",
                          ".abaAAbBBcAAdBBcCCdDDCCDD.."));
  EXPECT_THAT(Picture(OneFOneB, 3, 3, 1),
              ElementsAre("a......AA", ".a...AA..", "..aAA...."));
  // No further behind than there are micro-batches.
  EXPECT_THAT(Picture(ZeroBubble, 3, 3, 1),
              ElementsAre("a....AA", ".a..A'.", "..aA'.."));
}

TEST(PipelineTimeTest, BubbleOfEqualStages) {
  for (const int32_t p : {2, 3, 4, 8}) {
    for (const int32_t m : {1, 2, 5, 16}) {
      const auto bubble = [&](const StageSchedule& schedule, int32_t chunks) {
        return TimePipeline(PlanStages(schedule, p, chunks, m),
                            Equal(0.1, chunks))
            .bubble();
      };
      EXPECT_NEAR(bubble(OneFOneB, p), (p - 1.0) / (m + p - 1), 1e-12);
      if (m >= p) {
        EXPECT_NEAR(bubble(ZeroBubble, p), (p - 1.0) / (3 * m + p - 1), 1e-12);
      }
      if (m % p == 0) {
        EXPECT_NEAR(bubble(Interleaved, 3 * p), (p - 1.0) / (3 * m + p - 1),
                    1e-12);
      }
    }
  }
}

// Of two stages the second takes three times as long, and has the loss, which
// goes forward and backward in one.
TEST(PipelineTimeTest, ImbalanceIsInTheBubble) {
  const PipelineTime time = TimePipeline(
      PlanStages(OneFOneB, 2, 2, 2), [](const Instruction& at) -> VisitCost {
        if (at.op == Op::kLoss) return {.forward = 2, .backward = 4};
        const bool block = at.layer == 1 || at.layer == 2;
        if (at.op == Op::kForward && block) return {.forward = 1};
        if (at.op == Op::kBackward && block) return {.backward = 2};
        return {};
      });
  EXPECT_THAT(DrawPipeline(time, 96), ElementsAre("ab........AA.......BB",  //
                                                  ".aaaAAAAAAbbbBBBBBB.."));
  EXPECT_EQ(time.end(), 21);
  EXPECT_DOUBLE_EQ(time.bubble(), 1 - 24.0 / 42);
}

TEST(PipelineTimeTest, LongPicturesHaveBothEnds) {
  const PipelineTime time =
      TimePipeline(PlanStages(OneFOneB, 4, 4, 64), Equal(0.1, 4));
  const std::vector<std::string> whole = DrawPipeline(time, 300);
  EXPECT_THAT(whole, Each(SizeIs(3 * (64 + 3))));
  EXPECT_EQ(whole.front().back(), 'L') << "the letter of micro-batch 11 and 63";
  const std::vector<std::string> rows = DrawPipeline(time, 50);
  for (size_t s = 0; s < rows.size(); ++s) {
    EXPECT_EQ(rows[s],
              whole[s].substr(0, 25) + "~" + whole[s].substr(3 * 67 - 24));
  }
}

TEST(PipelineTimeTest, NothingTakesNoTime) {
  const PipelineTime time =
      TimePipeline(PlanStages(OneFOneB, 2, 2, 1),
                   [](const Instruction&) { return VisitCost{}; });
  EXPECT_EQ(time.bubble(), 0);
  EXPECT_THAT(DrawPipeline(time, 96), ElementsAre("", ""));
}

}  // namespace
}  // namespace delink::pipeline_time_test
