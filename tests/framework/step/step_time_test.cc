// Joint executions with costs, reckoned by hand.
#include "framework/step/time/step_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/step/plan/assemble.h"
#include "framework/step/plan/basic.h"
#include "framework/step/proof/validator.h"
#include "offload/plan/residency.h"
#include "parallel/pipeline/interleaved.h"
#include "parallel/pipeline/one_f_one_b.h"

namespace delink::step_time_test {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

// A slab a layer, as many layers a stage.
ProgramShape ShapeOf(int32_t layers, int32_t chunks, int32_t micro_batches) {
  ProgramShape shape{.layers = layers,
                     .slabs = layers,
                     .gathers = std::vector<bool>(layers, false),
                     .micro_batches = micro_batches};
  for (int32_t l = 0; l < layers; ++l) {
    shape.slabs_of_layer.push_back({l});
    shape.chunk_of_layer.push_back(l * chunks / layers);
  }
  return shape;
}

std::vector<Program> StagesOf(const StageSchedule& schedule,
                              const ProgramShape& shape) {
  std::vector<Program> stages;
  for (int32_t stage = 0; stage < shape.stages; ++stage) {
    stages.push_back(PlannerOf(schedule, false)(PassKind::kStep, shape, stage));
  }
  EXPECT_TRUE(ValidateStages(stages).ok());
  return stages;
}

Column ColumnOf(const std::vector<Program>& stages) {
  Column column;
  for (const Program& program : stages) {
    column.push_back({.rank = program.stage, .program = &program});
  }
  return column;
}

// What an instruction takes by what it is called; what is not here nothing.
MeasuredCosts ByName(std::map<std::string, double> own) {
  return [own = std::move(own)](const RankProgram& rank, int32_t index) {
    const auto found = own.find(ToString(rank.program->instructions[index]));
    return MeasuredTime{.own = found == own.end() ? 0 : found->second};
  };
}

SentBytes TransfersOf(int64_t bytes) {
  return [bytes](const RankProgram& rank, int32_t index) -> Sent {
    if (!IsTransfer(rank.program->instructions[index])) return {};
    return {.operations = 1, .bytes = bytes};
  };
}

TEST(StepTimeTest, AMicroBatchGoesOverASlowLinkTwice) {
  ProgramShape shape = ShapeOf(2, 2, 1);
  shape.stages = 2;
  const std::vector<Program> stages = StagesOf(OneFOneB, shape);
  // 7 seconds each way: F 1, way 8, Loss 13, way 20, B 22, Update.
  const StepLinks links{.neighbours = {.latency = 3, .bytes_per_second = 2}};
  const MeasuredCosts measured = ByName({{"F(0,a)", 1},
                                         {"Loss(a)", 5},
                                         {"B(0,a)", 2},
                                         {"Norm", 0.25},
                                         {"Update(0)", 4},
                                         {"Update(1)", 6}});
  const auto time =
      TimeStep({ColumnOf(stages)}, CostsOver(links, measured, TransfersOf(8)),
               /*drains=*/false);
  ASSERT_TRUE(time.ok()) << time.status();
  EXPECT_THAT(time->ends, ElementsAre(22.25 + 4, 22.25 + 6));
  // The first stage begins 2 earlier, the second waits for it all the same.
  EXPECT_EQ(time->seconds, 22.25 + 6 - 2);
}

// A lane has one transfer under way, latency and all.
TEST(StepTimeTest, WhatOneLaneSendsComesInTurn) {
  ProgramShape shape = ShapeOf(2, 2, 2);
  shape.stages = 2;
  const std::vector<Program> stages = StagesOf(OneFOneB, shape);
  const Costs costs =
      CostsOver({.neighbours = {.latency = 3, .bytes_per_second = 2}},
                ByName({{"F(0,a)", 1}, {"F(0,b)", 1}}), TransfersOf(8));
  const auto times = ExecuteTogether({ColumnOf(stages)}, costs);
  ASSERT_TRUE(times.ok()) << times.status();
  std::vector<double> begins;
  for (size_t i = 0; i < stages[0].instructions.size(); ++i) {
    if (stages[0].instructions[i].op != Op::kSend) continue;
    begins.push_back(times->first[0][i].begin);
  }
  EXPECT_THAT(begins, ElementsAre(1, 8));
}

// Two stages with two pieces each: inputs of the second piece and gradients of
// the first go the same way in lanes of their own.
TEST(StepTimeTest, TransfersOfAWayDoNotOverlapButLatenciesDo) {
  ProgramShape shape = ShapeOf(4, 4, 4);
  shape.stages = 2;
  const std::vector<Program> stages = StagesOf(Interleaved, shape);
  const Column column = ColumnOf(stages);
  const auto measured = [](const RankProgram& rank, int32_t index) {
    return MeasuredTime{.own = IsVisit(rank.program->instructions[index]) ? 1.
                                                                          : 0};
  };
  const Link link{.latency = 0.5, .bytes_per_second = 4};
  const auto times = ExecuteTogether(
      {column}, CostsOver({.neighbours = link}, measured, TransfersOf(12)));
  ASSERT_TRUE(times.ok()) << times.status();
  int met = 0;
  for (const Program& program : stages) {
    std::vector<std::pair<Interval, Lane>> sent;
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& at = program.instructions[i];
      if (at.op != Op::kSend) continue;
      sent.emplace_back(times->first[program.stage][i], at.lane);
    }
    std::sort(sent.begin(), sent.end(), [](const auto& a, const auto& b) {
      return a.first.begin < b.first.begin;
    });
    for (size_t i = 0; i + 1 < sent.size(); ++i) {
      const Interval &one = sent[i].first, &next = sent[i + 1].first;
      EXPECT_THAT(one.end - one.begin, DoubleNear(3.5, 1e-9));
      EXPECT_GE(next.begin, one.begin + 3 - 1e-9);
      if (next.begin < one.end - 1e-9) {
        EXPECT_NE(sent[i].second, sent[i + 1].second);
        ++met;
      }
    }
  }
  EXPECT_GT(met, 0);
}

TEST(StepTimeTest, ACollectiveWaitsForTheLastRank) {
  ProgramShape shape = ShapeOf(2, 1, 1);
  shape.ranks = 2;
  const Program program = PlanStep(shape, {});
  const std::vector<Column> columns = {{{.rank = 0, .program = &program}},
                                       {{.rank = 1, .program = &program}}};
  const MeasuredCosts first = ByName({{"F(0,a)", 1},
                                      {"Loss(a)", 2},
                                      {"B(0,a)", 3},
                                      {"Norm", 0.5},
                                      {"Update(0)", 1}});
  const MeasuredCosts second = ByName({{"F(0,a)", 2},
                                       {"Loss(a)", 3},
                                       {"B(0,a)", 4},
                                       {"Norm", 0.5},
                                       {"Update(0)", 2}});
  const auto measured = [&](const RankProgram& rank, int32_t index) {
    return rank.rank == 0 ? first(rank, index) : second(rank, index);
  };
  // Reduce(1) is of 6 bytes: 5 to 8; Reduce(0) when both are through B: 9.
  const auto sent = [](const RankProgram& rank, int32_t index) -> Sent {
    if (rank.program->instructions[index].op != Op::kReduce) return {};
    return {.operations = 2, .bytes = 6};
  };
  const StepLinks links{.network = {.latency = 0.5, .bytes_per_second = 3}};
  const auto time =
      TimeStep(columns, CostsOver(links, measured, sent), /*drains=*/true);
  ASSERT_TRUE(time.ok()) << time.status();
  EXPECT_THAT(time->ends, ElementsAre(12.5 + 1, 12.5 + 2));
  EXPECT_EQ(time->seconds, 14.5);
}

// What is gathered behind updates passes while the next step begins, unless all
// lanes are waited for.
TEST(StepTimeTest, GathersPassUnderTheNextStepWhereLanesGoOn) {
  ProgramShape shape = ShapeOf(2, 1, 1);
  shape.ranks = 2;
  shape.gathers = {true, true};
  const Program program = PlanStep(shape, {});
  const std::vector<Column> columns = {{{.rank = 0, .program = &program}}};
  const Costs costs = CostsOver(
      {},
      ByName(
          {{"F(0,a)", 5}, {"Loss(a)", 5}, {"Gather(0)", 1}, {"Gather(1)", 4}}),
      [](const RankProgram&, int32_t) { return Sent(); });
  EXPECT_EQ(TimeStep(columns, costs, /*drains=*/true)->seconds, 15);
  // Gather(0) 1, and Gather(1) with F(0,a).
  EXPECT_EQ(TimeStep(columns, costs, /*drains=*/false)->seconds, 11);
}

// Weights of which ranks have shards are gathered over the network, in 2.5 s,
// as soon as all ranks have room for them.
TEST(StepTimeTest, AGatherOfShardsHidesWhereThereIsRoom) {
  ProgramShape shape = ShapeOf(3, 1, 1);
  shape.ranks = 2;
  shape.shards = {true, true, false};
  shape.copy_class[static_cast<size_t>(PlaneSet::kWeight)] = {0, 0, -1};
  const MeasuredCosts first = ByName({{"F(0,a)", 3}, {"F(1,a)", 5}});
  const MeasuredCosts second = ByName({{"F(0,a)", 4}, {"F(1,a)", 4}});
  const auto measured = [&](const RankProgram& rank, int32_t index) {
    return rank.rank == 0 ? first(rank, index) : second(rank, index);
  };
  const auto sent = [](const RankProgram& rank, int32_t index) -> Sent {
    if (rank.program->instructions[index].op != Op::kFetch) return {};
    return {.operations = 1, .bytes = 6};
  };
  const StepLinks links{.network = {.latency = 0.5, .bytes_per_second = 3},
                        .bus = {.latency = 100, .bytes_per_second = 1}};
  const auto seconds = [&](int32_t copies) {
    shape.copies = {copies};
    const Program program = AddResidency(PlanEvaluation(shape));
    return TimeStep({{{.rank = 0, .program = &program}},
                     {{.rank = 1, .program = &program}}},
                    CostsOver(links, measured, sent), /*drains=*/true)
        ->seconds;
  };
  // F(0,a) hides Fetch(1).
  EXPECT_EQ(seconds(2), 2.5 + 3 + 5);
  // Fetch(1) needs the copy that F(0,a) reads, 1 s longer on the second rank.
  EXPECT_EQ(seconds(1), 2.5 + 4 + 2.5 + 5);
}

// All ranks of a visit begin it together and are through it together.
TEST(StepTimeTest, AnExchangeOfAVisitIsPartOfIt) {
  ProgramShape shape = ShapeOf(2, 1, 1);
  shape.ranks = shape.tensor = 2;
  shape.exchanges.resize(2);
  shape.exchanges[0][static_cast<int>(Phase::kRecord)] = {
      {Axis::kTensor, VisitExchange::Kind::kGather, 80},
      {Axis::kTensor, VisitExchange::Kind::kSum, 30}};
  const Program program = PlanStep(shape, {});
  const Instruction& forward = program.instructions.front();
  ASSERT_EQ(ToString(forward), "F(0,a)");
  const Sent sent = SentWithin(program, forward);
  EXPECT_EQ(sent.operations, 2);
  EXPECT_EQ(sent.bytes, 40 + 30);
  EXPECT_EQ(SentWithin(program, program.instructions.back()).operations, 0);
  const std::vector<Column> columns = {{{.rank = 0, .program = &program}},
                                       {{.rank = 1, .program = &program}}};
  const auto measured = [](const RankProgram& rank, int32_t index) {
    if (ToString(rank.program->instructions[index]) != "F(0,a)") {
      return MeasuredTime();
    }
    return MeasuredTime{.own = rank.rank == 0 ? 1.0 : 3.0, .exchanged = 0.25};
  };
  const auto within = [](const RankProgram& rank, int32_t index) {
    return SentWithin(*rank.program, rank.program->instructions[index]);
  };
  const auto ends = [&](const Link& link) {
    return TimeStep(columns, CostsOver({.visits = link}, measured, within),
                    true)
        ->ends;
  };
  EXPECT_THAT(ends({.latency = 1, .bytes_per_second = 35}),
              ElementsAre(3 + 2 + 2, 3 + 2 + 2));
  // What it took without a link is hidden by one, or left.
  EXPECT_THAT(ends({}), ElementsAre(3.25, 3.25));
}

// Of two ranks the second works 1 s more before it posts the second exchange.
// Each exchange is 2 s on a link of latency 1.
TEST(StepTimeTest, WorkHidesAnExchangeThatBeganBefore) {
  const auto moments = [](double more) -> std::vector<ExchangeMoment> {
    return {{0, false, 0, 0},
            {1, false, 1 + more, 0},
            {0, true, 4 + more, 0},
            {1, true, 4 + more, 0.25}};
  };
  const Sent sent{.operations = 2, .bytes = 20, .each = {10, 10}};
  const auto cost = [&](double rate, size_t place) {
    const Cost of = CostOver({.latency = 1, .bytes_per_second = rate},
                             {.own = 10 + static_cast<double>(place),
                              .exchanged = 100,
                              .moments = {moments(0), moments(1)},
                              .place = place},
                             sent);
    EXPECT_EQ(of.busy, 20 / rate);
    return of.time;
  };
  // The first ends at 3. The second begins when both have posted it, at 2, and
  // ends at 5.
  EXPECT_EQ(cost(5, 0), 10 + 1);
  EXPECT_EQ(cost(5, 1), 11 + 0.25);
  // At 8 s each they end at 9 and 17.
  EXPECT_EQ(cost(1.25, 0), 10 + 5 + 8);
  EXPECT_EQ(cost(1.25, 1), 11 + 4 + 8);
}

}  // namespace
}  // namespace delink::step_time_test
