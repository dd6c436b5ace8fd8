// Thousands of random pipelines: what their planners write is right, and what
// is derived of it safe, judged by a simulator of all their stages.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "framework/step/dependencies.h"
#include "framework/step/validator.h"
#include "tests/framework/step/programs.h"
#include "tests/framework/step/simulator.h"

namespace delink {
namespace {

using step_test::Dice;
using step_test::DrawPipeline;
using step_test::PipelineOrder;
using step_test::PlanPipeline;
using step_test::Sample;
using step_test::Simulate;

std::vector<Analysis> AnalyzeAll(const std::vector<Program>& stages) {
  std::vector<Analysis> analyses;
  for (const Program& program : stages) {
    analyses.push_back(AnalyzeProgram(program));
  }
  return analyses;
}

TEST(PipelinePropertyTest, PlannedPipelinesAreValidAndSafe) {
  Dice dice(11);
  for (int n = 0; n < 2000; ++n) {
    const Sample sample = DrawPipeline(dice);
    for (const PassKind kind : {PassKind::kStep, PassKind::kGradients,
                                PassKind::kEvaluation, PassKind::kDiagnosis}) {
      if (kind != PassKind::kStep && dice.Below(4) != 0) continue;
      const std::vector<Program> stages =
          PlanPipeline(sample, kind, static_cast<PipelineOrder>(dice.Below(3)));
      for (const Program& program : stages) {
        const absl::Status status = ValidateProgram(program);
        ASSERT_TRUE(status.ok()) << sample.text << ", stage " << program.stage
                                 << ": " << status.message();
      }
      ASSERT_EQ(Simulate(stages, AnalyzeAll(stages), dice), "")
          << sample.text << ", " << ToString(kind);
    }
  }
}

// The simulator sees what it is there to see.
bool IsCaught(const std::vector<Program>& stages,
              const std::vector<Analysis>& analyses, Dice& dice) {
  for (int attempt = 0; attempt < 200; ++attempt) {
    if (!Simulate(stages, analyses, dice).empty()) return true;
  }
  return false;
}

// What other ranks do keeps many instructions apart by itself, so that no
// simulation misses a dependency on them: not that of what is sent on what
// makes it, or of what uses what comes on its coming.
bool IsOfContent(const Instruction& waits, const Instruction& for_this) {
  return (waits.op == Op::kSend && for_this.op != Op::kRecv) ||
         (for_this.op == Op::kRecv && waits.op != Op::kSend &&
          waits.op != Op::kRecv);
}

TEST(PipelinePropertyTest, SimulatorCatchesWrongAnalyses) {
  Dice dice(12);
  int slots = 0, boundaries = 0;
  for (int n = 0; n < 100; ++n) {
    const Sample sample = DrawPipeline(dice);
    const std::vector<Program> stages =
        PlanPipeline(sample, PassKind::kStep, PipelineOrder::kForwardsFirst);
    const std::vector<Analysis> analyses = AnalyzeAll(stages);
    const int32_t stage = dice.Below(sample.shape.stages);
    const std::vector<Instruction>& list = stages[stage].instructions;
    std::vector<Analysis> wrong = analyses;
    Analysis& of = wrong[stage];
    std::vector<std::pair<size_t, size_t>> candidates;
    for (size_t i = 0; i < list.size(); ++i) {
      for (size_t k = 0; k < of.dependencies[i].size(); ++k) {
        const Dependency& d = of.dependencies[i][k];
        if (!d.previous_step && IsOfContent(list[i], list[d.instruction])) {
          candidates.emplace_back(i, k);
        }
      }
    }
    const auto [i, k] =
        candidates[dice.Below(static_cast<int32_t>(candidates.size()))];
    of.dependencies[i].erase(of.dependencies[i].begin() +
                             static_cast<int64_t>(k));
    EXPECT_TRUE(IsCaught(stages, wrong, dice))
        << sample.text << ", stage " << stage << ": " << ToString(list[i]);

    // Two inputs that leave, or two gradients, in one place.
    of = analyses[stage];
    if (of.slots.back() > 1) {
      ++slots;
      for (int32_t l = 0; l < sample.shape.layers; ++l) {
        if (of.pool_of[l] + 1 != static_cast<int32_t>(of.slots.size())) {
          continue;
        }
        for (int32_t& slot : of.slot_of[l]) slot = slot == 1 ? 0 : slot;
      }
      EXPECT_TRUE(IsCaught(stages, wrong, dice)) << sample.text;
    }
    of = analyses[stage];
    if (of.boundaries > 1) {
      ++boundaries;
      for (int32_t& boundary : of.boundary_of[stage]) {
        boundary = boundary == 1 ? 0 : boundary;
      }
      EXPECT_TRUE(IsCaught(stages, wrong, dice)) << sample.text;
    }
  }
  EXPECT_GT(slots, 30);
  EXPECT_GT(boundaries, 30);
}

}  // namespace
}  // namespace delink
