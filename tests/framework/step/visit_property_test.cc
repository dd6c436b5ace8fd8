// Random programs of up to 64 ranks that work on the same visits and exchange
// in the middle of them: what the validator passes ends, whatever the order in
// which ranks come to it, and what it refuses is named.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "framework/step/plan/basic.h"
#include "framework/step/proof/validator.h"
#include "tests/framework/step/programs.h"
#include "tests/framework/step/visit_simulator.h"

namespace delink::visit_property_test {
namespace {

using step_test::Dice;
using step_test::Sample;

// DELINK_PROGRAMS=10000 for more.
int Programs() {
  const char* const text = std::getenv("DELINK_PROGRAMS");
  return text != nullptr ? std::atoi(text) : 500;
}

// By rank, of up to so many.
std::vector<Program> DrawRanks(Dice& dice, int32_t most, Sample* sample) {
  const PassKind kinds[] = {PassKind::kStep,      PassKind::kStep,
                            PassKind::kGradients, PassKind::kEvaluation,
                            PassKind::kProbe,     PassKind::kDiagnosis};
  const PassKind kind = kinds[dice.Below(6)];
  const bool pipeline = dice.Coin();
  *sample =
      pipeline ? step_test::DrawPipeline(dice) : step_test::DrawSample(dice);
  step_test::DrawVisitGroups(dice, most, sample);
  if (dice.Coin()) step_test::DrawCopies(dice, sample);
  std::vector<Program> stages;
  if (pipeline) {
    stages =
        step_test::PlanPipeline(*sample, kind,
                                static_cast<step_test::PipelineOrder>(
                                    dice.Below(step_test::kPipelineOrders)));
  } else {
    stages = {BasicPlanner(sample->options)(kind, sample->shape, 0)};
  }
  std::vector<Program> ranks;
  for (const Program& program : stages) {
    ranks.insert(ranks.end(), sample->shape.ranks,
                 step_test::WithCopies(program, dice));
  }
  return ranks;
}

int32_t DrawMost(Dice& dice) { return dice.Below(8) == 0 ? 64 : 24; }

TEST(VisitPropertyTest, PlannedProgramsAreProvedAndEnd) {
  Dice dice(21);
  size_t largest = 0;
  int sharded = 0;
  for (int n = 0; n < Programs(); ++n) {
    Sample sample;
    const std::vector<Program> ranks = DrawRanks(dice, DrawMost(dice), &sample);
    largest = std::max(largest, ranks.size());
    sharded += sample.shape.shards.empty() ? 0 : 1;
    const absl::Status status = ValidatePrograms(ranks);
    ASSERT_TRUE(status.ok()) << sample.text << ": " << status.message();
    ASSERT_EQ(SimulateRanks(ranks, dice), "") << sample.text;
  }
  EXPECT_GT(largest, 48u);
  EXPECT_GT(sharded, Programs() / 20);
}

// An instruction of one rank somewhere else in its program.
void MoveOne(std::vector<Program>& ranks, Dice& dice) {
  auto& list =
      ranks[dice.Below(static_cast<int32_t>(ranks.size()))].instructions;
  const auto count = static_cast<int32_t>(list.size());
  const int32_t from = dice.Below(count);
  const int32_t far = dice.Below(4) > 0 ? 2 : count;
  const int32_t to = std::clamp(from + dice.Between(-far, far), 0, count - 1);
  const Instruction moved = list[from];
  list.erase(list.begin() + from);
  list.insert(list.begin() + to, moved);
}

// Ranks whose programs differ may be right as well: then they end.
TEST(VisitPropertyTest, WhatIsPassedEndsWhereRanksDiffer) {
  Dice dice(22);
  int passed = 0, unlike = 0, stuck = 0;
  for (int n = 0; n < Programs(); ++n) {
    Sample sample;
    std::vector<Program> ranks = DrawRanks(dice, 16, &sample);
    for (int32_t moves = dice.Between(1, 2); moves > 0; --moves) {
      MoveOne(ranks, dice);
    }
    const absl::Status status = ValidatePrograms(ranks);
    if (status.ok()) {
      ++passed;
      ASSERT_EQ(SimulateRanks(ranks, dice), "") << sample.text;
      continue;
    }
    const std::string message(status.message());
    ASSERT_NE(message.find("rank "), std::string::npos) << message;
    const bool in_visits = message.find("same visits") != std::string::npos;
    const bool for_ever = message.find("waits for ever") != std::string::npos;
    if (in_visits || for_ever) {
      ASSERT_NE(SimulateRanks(ranks, dice), "") << message;
    }
    unlike += in_visits ? 1 : 0;
    stuck += for_ever ? 1 : 0;
  }
  std::printf(
      "%d of %d passed; %d had visits in another order, %d would wait "
      "for ever\n",
      passed, Programs(), unlike, stuck);
  EXPECT_GT(passed, Programs() / 20);
  EXPECT_GT(unlike, Programs() / 100);
}

}  // namespace
}  // namespace delink::visit_property_test
