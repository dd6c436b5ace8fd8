// What takes the time of simulated steps, and how lanes share a rank's lines,
// reckoned by hand.
#include "framework/step/time/critical_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/step/plan/assemble.h"
#include "framework/step/plan/basic.h"
#include "offload/plan/residency.h"
#include "parallel/pipeline/one_f_one_b.h"

namespace delink::critical_path_test {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// A slab a layer, and a layer a stage.
ProgramShape ShapeOf(int32_t layers, int32_t stages) {
  ProgramShape shape{.layers = layers,
                     .slabs = layers,
                     .gathers = std::vector<bool>(layers, false),
                     .stages = stages};
  for (int32_t l = 0; l < layers; ++l) {
    shape.slabs_of_layer.push_back({l});
    shape.chunk_of_layer.push_back(stages == 1 ? 0 : l);
  }
  return shape;
}

// Costs by what an instruction is called: "F(0,a)", or "1 F(0,a)" on rank 1.
using ByName = std::map<std::string, Cost>;

CriticalPath PathOf(const std::vector<Column>& columns, const ByName& costs,
                    bool drains) {
  const Costs cost = [&](const RankProgram& rank, int32_t index) -> Cost {
    const std::string name = ToString(rank.program->instructions[index]);
    const auto own = costs.find(std::to_string(rank.rank) + " " + name);
    if (own != costs.end()) return own->second;
    const auto all = costs.find(name);
    return all == costs.end() ? Cost() : all->second;
  };
  const auto time = TimeStep(columns, cost, drains);
  EXPECT_TRUE(time.ok()) << time.status();
  const CriticalPath path = FindCriticalPath(
      columns, *time, [&](const RankProgram& rank, int32_t index) -> TimeParts {
        const Instruction& at = rank.program->instructions[index];
        return {{ToString(at.op), cost(rank, index).time}};
      });
  double sum = 0;
  for (const auto& [word, seconds] : path.parts) sum += seconds;
  EXPECT_DOUBLE_EQ(sum, time->seconds);
  return path;
}

TEST(CriticalPath, AStageWaitsForTheOther) {
  const ProgramShape shape = ShapeOf(2, 2);
  const StageSchedule schedule = OneFOneB;
  std::vector<Program> stages;
  for (int32_t stage = 0; stage < 2; ++stage) {
    stages.push_back(PlannerOf(schedule, false)(PassKind::kStep, shape, stage));
  }
  const std::vector<Column> columns = {
      {{.rank = 0, .program = &stages[0]}, {.rank = 1, .program = &stages[1]}}};
  const CriticalPath path = PathOf(columns,
                                   {{"F(0,a)", {1}},
                                    {"Send(1,a)", {3}},
                                    {"Loss(a)", {5}},
                                    {"Send(1,a)g", {4}},
                                    {"Recv(1,a)g", {4}},
                                    {"B(0,a)", {2}},
                                    {"Update(0)", {0.5}}},
                                   /*drains=*/true);
  EXPECT_EQ(path.rank, 0);
  // The first stage is released by what it receives, at 13; before, the second
  // works, and the input is under way to it.
  EXPECT_THAT(path.parts,
              ElementsAre(Pair(kForPipeline, 5 + 3), Pair("Recv", 4),
                          Pair("B", 2), Pair("F", 1), Pair("Update", 0.5)));
}

// The second of two ranks takes longer for the first layer.
TEST(CriticalPath, ARankWaitsForTheSlowerAndForItsOwnLanes) {
  ProgramShape shape = ShapeOf(2, 1);
  shape.ranks = 2;
  const Program program = PlanStep(shape, {});
  const std::vector<Column> columns = {{{.rank = 0, .program = &program}},
                                       {{.rank = 1, .program = &program}}};
  ByName costs = {{"0 F(0,a)", {1}},  {"1 F(0,a)", {4}},  {"Loss(a)", {2}},
                  {"Reduce(0)", {6}}, {"Reduce(1)", {1}}, {"0 Update(1)", {3}}};
  EXPECT_THAT(
      PathOf(columns, costs, true).parts,
      ElementsAre(Pair("Reduce", 7), Pair("Update", 3),
                  Pair(kForSlowerRanks, 3), Pair("Loss", 2), Pair("F", 1)));
  costs["1 Update(1)"] = {5};
  const CriticalPath slow = PathOf(columns, costs, true);
  EXPECT_EQ(slow.rank, 1);
  EXPECT_THAT(slow.parts, ElementsAre(Pair("Reduce", 7), Pair("Update", 5),
                                      Pair("F", 4), Pair("Loss", 2)));
}

// A visit and a gather of weights for the next are ready together.
TEST(CriticalPath, LanesTakeTurnsOnALine) {
  ProgramShape shape = ShapeOf(3, 1);
  shape.ranks = 2;
  shape.shards = {true, true, false};
  shape.copies = {2};
  shape.copy_class[static_cast<size_t>(PlaneSet::kWeight)] = {0, 0, -1};
  const Program program = AddResidency(PlanEvaluation(shape));
  const std::vector<Column> columns = {{{.rank = 0, .program = &program}},
                                       {{.rank = 1, .program = &program}}};
  const Cost gather = {.time = 2.5, .between = 2};
  const auto path = [&](const Cost& visit) {
    return PathOf(columns,
                  {{"Fetch(0)", gather},
                   {"Fetch(1)", gather},
                   {"F(0,a)", visit},
                   {"F(1,a)", {5}}},
                  true);
  };
  // On another line the visit hides the second gather.
  EXPECT_THAT(path({.time = 3, .inside = 3}).parts,
              ElementsAre(Pair("F", 3 + 5), Pair("Fetch", 2.5)));
  // It has the line for 1 s, then the gather begins, at 3.5: it ends 0.5 s
  // after the visit.
  EXPECT_THAT(path({.time = 3, .between = 1}).parts,
              ElementsAre(Pair("F", 3 + 5), Pair("Fetch", 2.5 + 0.5)));
  // On the cores it is done before the gather, or the other way round.
  const Cost alone = {.time = 2.5, .cores = 2.5};
  EXPECT_THAT(PathOf(columns,
                     {{"Fetch(0)", alone},
                      {"Fetch(1)", alone},
                      {"F(0,a)", {.time = 3, .cores = 3}},
                      {"F(1,a)", {5}}},
                     true)
                  .parts,
              ElementsAre(Pair("F", 3 + 5), Pair("Fetch", 2.5 + 2.5)));
}

}  // namespace
}  // namespace delink::critical_path_test
