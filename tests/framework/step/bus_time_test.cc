// Joint executions of steps whose planes come and go between homes, reckoned by
// hand: what hides under what, and what does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/step/plan/basic.h"
#include "framework/step/proof/validator.h"
#include "framework/step/time/lane_use.h"
#include "framework/step/time/step_time.h"
#include "offload/plan/residency.h"

namespace delink::bus_time_test {
namespace {

using ::testing::ElementsAre;

// Three layers, a slab each, two micro-batches; weights, gradient and state of
// slab 1 are at home on the host, which updates it:
//
//   F(0,a) F(0,b) Fetch(1) F(1,a) F(1,b) Loss(a) Loss(b) Take(1)g B(1,a) B(1,b)
//   Evict(1)g B(0,a) B(0,b) Norm Update(0) Update(1) Update(2)
Program MiddleOnHost() {
  const std::vector<int32_t> middle = {-1, 0, -1}, gradient = {-1, 1, -1};
  const ProgramShape shape{
      .layers = 3,
      .slabs = 3,
      .slabs_of_layer = {{0}, {1}, {2}},
      .gathers = std::vector<bool>(3, false),
      .copy_class = {middle, gradient, std::vector<int32_t>{-1, 2, -1}},
      .copies = {1, 1, 1},
      .host_updates = {false, true, false},
      .micro_batches = 2};
  Program program =
      AddResidency(PlanStep(shape, {.order = MicroBatchOrder::kLayerMajor}));
  EXPECT_TRUE(ValidateProgram(program).ok());
  return program;
}

// A second each, backward and losses two; nothing for what is not here.
std::map<std::string, double> Seconds() {
  std::map<std::string, double> seconds = {{"Update(0)", 1}, {"Update(2)", 1}};
  for (const char* const visit : {"F(0,a)", "F(0,b)", "F(1,a)", "F(1,b)"}) {
    seconds[visit] = 1;
  }
  for (const char* const visit :
       {"Loss(a)", "Loss(b)", "B(1,a)", "B(1,b)", "B(0,a)", "B(0,b)"}) {
    seconds[visit] = 2;
  }
  return seconds;
}

// Copies of 6 bytes, which by themselves take no time.
StepTime Time(const Program& program, const Link& bus, double host_update,
              bool drains = false) {
  std::map<std::string, double> own = Seconds();
  own["Update(1)"] = host_update;
  const MeasuredCosts measured = [own](const RankProgram& rank, int32_t index) {
    const auto found = own.find(ToString(rank.program->instructions[index]));
    return MeasuredTime{.own = found == own.end() ? 0 : found->second};
  };
  const SentBytes sent = [](const RankProgram& rank, int32_t index) -> Sent {
    const Op op = rank.program->instructions[index].op;
    if (op != Op::kFetch && op != Op::kEvict) return {};
    return {.operations = 1, .bytes = 6};
  };
  const Column column = {{.rank = 0, .program = &program}};
  const auto time =
      TimeStep({column}, CostsOver({.bus = bus}, measured, sent), drains);
  EXPECT_TRUE(time.ok()) << time.status();
  return *time;
}

struct Use {
  double busy, hidden;
  friend bool operator==(const Use&, const Use&) = default;
};

// Of the lanes that are at work.
std::map<Lane, Use> UsesOf(const Program& program, const StepTime& time) {
  std::map<Lane, Use> uses;
  for (const LaneUse& use : UseOfLanes(program, time, 0, 8)) {
    uses[use.lane] = {use.busy, use.hidden};
  }
  return uses;
}

// Compute is at work for 18 s. The step ends at 18, and Update(1) takes from 16
// to 19: Fetch(1) of the next step, which F(1,a) needs at 20, is there at 20.5.
TEST(BusTimeTest, TheStepWaitsForWhatDoesNotHide) {
  const Program program = MiddleOnHost();
  const StepTime time =
      Time(program, {.latency = 0.5, .bytes_per_second = 6}, 3);
  EXPECT_EQ(time.begin, 18);
  EXPECT_EQ(time.seconds, 18.5);
  const auto uses = UsesOf(program, time);
  ASSERT_EQ(uses.size(), 4U);
  EXPECT_EQ(uses.at(Lane::kCompute), (Use{18, 18}));
  EXPECT_EQ(uses.at(Lane::kIn), (Use{1.5, 1}));
  EXPECT_EQ(uses.at(Lane::kOut), (Use{1.5, 1.5}));
  EXPECT_EQ(uses.at(Lane::kHost), (Use{3, 3}));
}

TEST(BusTimeTest, WithAShorterUpdateAllOfItHides) {
  const Program program = MiddleOnHost();
  const StepTime time =
      Time(program, {.latency = 0.5, .bytes_per_second = 6}, 2.5);
  EXPECT_EQ(time.seconds, 18);
  const auto uses = UsesOf(program, time);
  for (const auto& [lane, use] : uses) EXPECT_EQ(use.hidden, use.busy);
  EXPECT_EQ(uses.at(Lane::kIn).busy, 1.5);
}

// Over a bus of a byte a second a copy takes 6. The gradient leaves at 12, is
// home at 18, Update(1) is through at 21 and Fetch(1) at 27: F(0,b) of the next
// step, which begins at 18, has ended at 20.
TEST(BusTimeTest, OverASlowBusEvictionUpdateAndFetchAreOneBehindTheOther) {
  const Program program = MiddleOnHost();
  const StepTime time = Time(program, {.bytes_per_second = 1}, 3);
  EXPECT_EQ(time.seconds, 18 + 7);
  const auto uses = UsesOf(program, time);
  EXPECT_EQ(uses.at(Lane::kIn), (Use{6, 0}));
  EXPECT_EQ(uses.at(Lane::kOut), (Use{6, 6}));
  EXPECT_EQ(uses.at(Lane::kHost), (Use{3, 2}));
}

// An engine that waits for all lanes at the end of a step hides no update.
TEST(BusTimeTest, WhereAStepDrainsTheUpdateIsPartOfIt) {
  const Program program = MiddleOnHost();
  const StepTime time =
      Time(program, {.latency = 0.5, .bytes_per_second = 6}, 3, true);
  EXPECT_EQ(time.begin, 0);
  EXPECT_EQ(time.seconds, 19);
  const auto uses = UsesOf(program, time);
  EXPECT_EQ(uses.at(Lane::kIn), (Use{1.5, 1.5}));
  EXPECT_EQ(uses.at(Lane::kHost), (Use{3, 2}));
}

// With one copy more than a layer needs the next layer's weights come while one
// is at work, forward and backward.
TEST(BusTimeTest, WeightsComeUnderTheLayerBefore) {
  ProgramShape shape{.layers = 6, .slabs = 6, .copies = {2}};
  shape.gathers.assign(6, false);
  for (int32_t slab = 0; slab < 6; ++slab) {
    shape.slabs_of_layer.push_back({slab});
    const bool block = slab > 0 && slab < 5;
    shape.copy_class[0].push_back(block ? 0 : -1);
  }
  const Program program = AddResidency(PlanGradients(shape, {}));
  ASSERT_TRUE(ValidateProgram(program).ok());
  const MeasuredCosts measured = [](const RankProgram& rank, int32_t index) {
    return MeasuredTime{.own = IsVisit(rank.program->instructions[index]) ? 2.
                                                                          : 0};
  };
  int fetches = 0;
  for (const Instruction& at : program.instructions) {
    fetches += at.op == Op::kFetch ? 1 : 0;
  }
  ASSERT_EQ(fetches, 4 + 2);
  const SentBytes sent = [](const RankProgram& rank, int32_t index) -> Sent {
    if (rank.program->instructions[index].op != Op::kFetch) return {};
    return {.operations = 1, .bytes = 6};
  };
  const Column column = {{.rank = 0, .program = &program}};
  const auto time = TimeStep(
      {column},
      CostsOver({.bus = {.latency = 1, .bytes_per_second = 6}}, measured, sent),
      /*drains=*/false);
  ASSERT_TRUE(time.ok()) << time.status();
  EXPECT_EQ(time->seconds, 11 * 2);
  EXPECT_EQ(UsesOf(program, *time).at(Lane::kIn), (Use{6 * 2, 6 * 2}));
}

// Fetch(1), in another lane, has the bus until 6.
TEST(BusTimeTest, MemoryForACopyIsTakenWithoutTheBus) {
  const Program program = MiddleOnHost();
  const StepTime time = Time(program, {.bytes_per_second = 1}, 3);
  std::map<std::string, double> ends;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    ends[ToString(program.instructions[i])] = time.times.first[0][i].end;
  }
  EXPECT_EQ(ends.at("Fetch(1)"), 6);
  EXPECT_EQ(ends.at("Take(1)g"), 0);
}

TEST(BusTimeTest, APictureSaysWhatTakesMostOfAColumn) {
  const Program program = MiddleOnHost();
  const StepTime time = Time(program, {.bytes_per_second = 1}, 3);
  std::vector<std::string> pictures;
  for (const LaneUse& use : UseOfLanes(program, time, 0, 25)) {
    pictures.push_back(use.picture);
  }
  EXPECT_THAT(pictures, ElementsAre("FF.......FFLLLLBBBBBBBBUU",    // compute
                                    "...wwwwww................",    // in
                                    "...................gggggg",    // out
                                    "UUU......................"));  // host
  pictures.clear();
  for (const LaneUse& use : UseOfLanes(program, time, 0, 5)) {
    pictures.push_back(use.picture);
  }
  EXPECT_THAT(pictures, ElementsAre("..LBB", ".w...", "....g", "U...."));
}

}  // namespace
}  // namespace delink::bus_time_test
