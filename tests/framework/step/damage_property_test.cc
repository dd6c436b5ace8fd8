// Thousands of damaged programs: the validator catches every one and names the
// instruction. Prints how many of each kind.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "framework/step/plan/basic.h"
#include "framework/step/proof/validator.h"
#include "tests/framework/step/damage.h"
#include "tests/framework/step/programs.h"
#include "tests/testing/full_test.h"

namespace delink::damage_property_test {
namespace {

using step_test::Damage;
using step_test::Damages;
using step_test::Dice;

const int kOfEachKind = testing::IsFullTest() ? 1000 : 300;

bool NamesOne(const std::string& message,
              const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return message.find(name) != std::string::npos;
  });
}

// Where it is: an instruction by index and text, a rank, or the end.
bool HasPlace(const std::string& message) {
  return NamesOne(message, {"instruction ", "end of the program: ", "rank "});
}

// By rank.
std::vector<Program> ProgramsOf(step_test::Sample& sample, const Damage& damage,
                                Dice& dice) {
  ProgramShape& shape = sample.shape;
  if (damage.groups) step_test::DrawVisitGroups(dice, 32, &sample);
  if (damage.copies) step_test::DrawCopies(dice, &sample);
  if (!damage.pipeline) {
    if (!damage.groups) shape.ranks = std::min(shape.ranks, 8);
    Program program = BasicPlanner(sample.options)(damage.kind, shape, 0);
    if (damage.stores) program = step_test::WithSomeStored(program, dice);
    if (damage.copies) program = step_test::WithCopies(program, dice);
    return std::vector<Program>(shape.ranks, program);
  }
  if (!damage.groups) shape.ranks = std::min(shape.ranks, 3);
  const auto order = static_cast<step_test::PipelineOrder>(
      dice.Below(step_test::kPipelineOrders));
  std::vector<Program> ranks;
  for (Program program : step_test::PlanPipeline(sample, damage.kind, order)) {
    if (damage.stores) program = step_test::WithSomeStored(program, dice);
    if (damage.copies) program = step_test::WithCopies(program, dice);
    ranks.insert(ranks.end(), shape.ranks, program);
  }
  return ranks;
}

TEST(DamagePropertyTest, EveryDamageIsCaughtAndNamed) {
  Dice dice(7);
  std::printf("%-36s %8s %8s\n", "damage", "injected", "caught");
  int all = 0;
  for (const Damage& damage : Damages()) {
    int injected = 0, caught = 0;
    std::string first_miss;
    for (int tries = 0; injected < kOfEachKind && tries < 40 * kOfEachKind;
         ++tries) {
      step_test::Sample sample = damage.pipeline ? step_test::DrawPipeline(dice)
                                                 : step_test::DrawSample(dice);
      std::vector<Program> ranks = ProgramsOf(sample, damage, dice);
      const auto damaged = damage.apply(ranks, dice);
      if (!damaged) continue;
      ++injected;
      const absl::Status status = ValidatePrograms(ranks);
      const std::string message(status.message());
      if (status.code() == absl::StatusCode::kInvalidArgument &&
          HasPlace(message) && NamesOne(message, damaged->names)) {
        ++caught;
      } else if (first_miss.empty()) {
        first_miss = sample.text + ": expected " + damaged->names.front() +
                     ", got \"" + message + "\"";
      }
    }
    std::printf("%-36s %8d %8d\n", damage.name, injected, caught);
    EXPECT_EQ(injected, kOfEachKind) << damage.name;
    EXPECT_EQ(caught, injected) << damage.name << ": " << first_miss;
    all += injected;
  }
  std::printf("%-36s %8d\n", "all kinds", all);
}

}  // namespace
}  // namespace delink::damage_property_test
