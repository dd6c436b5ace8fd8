// Plans by a trace that the test has written, so that what comes out can be
// reckoned by hand.
#include "recipes/plan/step_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/base/file.h"
#include "recipes/plan/plan.h"
#include "tests/testing/source_path.h"

namespace delink::testing::step_trace_test {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using nlohmann::json;

const std::string kTiny = SourcePath("recipes/tiny.toml");
constexpr double kNear = 1e-9;
constexpr int64_t kCopied = 1000;  // bytes, whatever is copied

class StepTraceTest : public ::testing::Test {
 protected:
  // Of the real stage in this layout on two ranks.
  static PlanOptions Options(const std::string& layout) {
    return {
        .recipe = kTiny,
        .sets = {"model.vocab=257", "run.threads=1",
                 "stage.1.parallel=" + layout, "stage.0.parallel=" + layout},
        .ranks = 2};
  }
  static std::string Path() {
    return ::testing::TempDir() + "/step_trace.json";
  }

  // Milliseconds of an instruction on a rank, and of what it exchanges in it.
  struct Took {
    double all = 0;
    std::vector<double> exchanges = {};
    // It posts so many as it begins, and waits for them, in no time, then.
    size_t posted = 0;
    double awaited = 0;
  };
  using TookOf = std::function<Took(int rank, const Instruction& at, int step)>;

  // A trace of steps 11 to 13 by the programs of a plan.
  static void Write(const StagePlan& plan, const TookOf& took) {
    json events = json::array();
    for (int rank = 0; rank < 2; ++rank) {
      const int stage = plan.mesh.PlaceOf(rank)[Axis::kPipeline];
      const Program& program = plan.pipeline.stages.at(stage).program;
      for (int step = 11; step <= 13; ++step) {
        double now = 1e6 * step;
        const auto add = [&](const std::string& name, const char* category,
                             const Instruction& at, double milliseconds,
                             json args) {
          args["step"] = step;
          events.push_back({{"name", name},
                            {"cat", category},
                            {"ph", "X"},
                            {"pid", rank},
                            {"tid", static_cast<int>(at.lane)},
                            {"ts", now},
                            {"dur", 1e3 * milliseconds},
                            {"args", std::move(args)}});
        };
        for (size_t i = 0; i < program.instructions.size(); ++i) {
          const Instruction& at = program.instructions[i];
          const Took of = took(rank, at, step);
          const std::string name = ToString(at) + " of something";
          for (const double exchange : of.exchanges) {
            add(name + ": gather over tensor", "Exchange", at, exchange, {});
          }
          for (size_t k = 0; k < of.posted; ++k) {
            const double begin = now;
            now += 1e3 * of.awaited;
            add(name + ": gather over tensor", "Exchange", at, 0,
                {{"posted", begin + static_cast<double>(k)}});
            now = begin;
          }
          const bool copies = at.op == Op::kFetch || at.op == Op::kEvict;
          add(name, ToString(at.op), at, of.all,
              {{"instruction", i}, {"bytes", copies ? kCopied : 0}});
          now += 1e3 * of.all;
        }
      }
    }
    const json trace = {{"traceEvents", std::move(events)}};
    ASSERT_TRUE(WriteFile(Path(), trace.dump()).ok());
  }

  // Plans, writes the trace and plans again by it.
  static absl::StatusOr<TracedTime> Time(const std::string& layout,
                                         const TookOf& took,
                                         const Link& link = {},
                                         RunPlan* without = nullptr) {
    const ModelList models = BuiltInModels();
    PlanOptions options = Options(layout);
    const absl::StatusOr<RunPlan> plan = PlanRun(options, models);
    if (!plan.ok()) return plan.status();
    EXPECT_FALSE(plan->stages[1].traced.has_value());
    Write(plan->stages[1], took);
    if (without != nullptr) *without = *plan;
    options.trace = Path();
    options.link = link;
    const absl::StatusOr<RunPlan> timed = PlanRun(options, models);
    if (!timed.ok()) return timed.status();
    EXPECT_FALSE(timed->stages[0].traced.has_value());
    return timed->stages[1].traced.value();
  }
};

// The rank that comes last to the norm does not wait there; a step that took
// long by chance is not the median.
TEST_F(StepTraceTest, RanksWaitForTheSlowest) {
  RunPlan plan;
  const auto took = [](int rank, const Instruction& at, int step) -> Took {
    const double chance = step == 12 ? 500 : 0;
    if (ToString(at) == "F(1,a)") return {rank == 0 ? 10 : 20 + chance, {}};
    if (at.op == Op::kNorm) return {rank == 0 ? 100.0 : 5.0, {}};
    return {};
  };
  const auto time = Time("{ data = 2 }", took, {}, &plan);
  ASSERT_TRUE(time.ok()) << time.status();
  EXPECT_EQ(time->steps, 3);
  EXPECT_NEAR(time->planned, 0.025, kNear);
  EXPECT_THAT(time->ends,
              ElementsAre(DoubleNear(0.025, kNear), DoubleNear(0.025, kNear)));
  // Over a link each slab's gradient is scattered and gathered again, one
  // behind the other, all after F(1,a); the link hides what the norm took.
  int reductions = 0;
  for (const Instruction& at :
       plan.stages[1].pipeline.stages[0].program.instructions) {
    reductions += at.op == Op::kReduce ? 1 : 0;
  }
  ASSERT_GT(reductions, 2);
  const auto over =
      Time("{ data = 2 }", took, {.latency = 0.5, .bytes_per_second = 1e15});
  ASSERT_TRUE(over.ok()) << over.status();
  EXPECT_NEAR(over->planned, 0.02 + reductions * 1.0 + 0.5, 1e-6);
}

TEST_F(StepTraceTest, BytesAreThoseThatTheStageMoves) {
  RunPlan plan;
  const auto nothing = [](int, const Instruction&, int) { return Took(); };
  const auto over = Time("{ data = 2, zero = 1 }", nothing,
                         {.latency = 0, .bytes_per_second = 1e6}, &plan);
  ASSERT_TRUE(over.ok()) << over.status();
  // Of two ranks each sends half of what is scattered and of what is gathered,
  // and the norm's sums.
  const StagePlan& stage = plan.stages[1];
  const double slabs =
      static_cast<double>(stage.reduced_bytes + stage.gathered_bytes) / 2;
  EXPECT_GT(over->planned, 1e-6 * slabs);
  EXPECT_LT(over->planned, 1e-6 * slabs * 1.05);
}

TEST_F(StepTraceTest, StagesWaitForWhatIsSent) {
  const auto took = [](int, const Instruction& at, int) -> Took {
    if (at.op == Op::kLoss) return {10, {}};
    return {};
  };
  const auto near = Time("{ pipeline = 2 }", took);
  ASSERT_TRUE(near.ok()) << near.status();
  EXPECT_NEAR(near->planned, 0.04, kNear);
  // The first stage has a and b sent at 0.1 and 0.2. Their losses' gradients,
  // of 0.11 and 0.21, are back at 0.21 and, in the same lane, 0.31: only then c
  // and d leave. d's loss is there at 0.42, its gradient back at 0.52. Then the
  // embedding that both stages have is reduced, which is two exchanges, the
  // norm is taken, and behind it what ranks have waited is added up.
  const auto far = Time("{ pipeline = 2 }", took,
                        {.latency = 0.1, .bytes_per_second = 1e15});
  ASSERT_TRUE(far.ok()) << far.status();
  EXPECT_NEAR(far->planned, 0.52 + 0.2 + 0.1 + 0.1, 1e-6);
}

TEST_F(StepTraceTest, WhatAVisitExchangesIsNotItsOwn) {
  RunPlan plan;
  const auto took = [](int rank, const Instruction& at, int) -> Took {
    if (ToString(at) != "F(1,a)") return {};
    if (rank == 0) return {30, {5, 20}};
    return {30, {17, 1}};
  };
  // 5 of one's own and 12 of the other's; exchanges take 5 and 1.
  const auto near = Time("{ tensor = 2 }", took, {}, &plan);
  ASSERT_TRUE(near.ok()) << near.status();
  EXPECT_NEAR(near->planned, 0.012 + 0.006, kNear);
  const auto far =
      Time("{ tensor = 2 }", took, {.latency = 1, .bytes_per_second = 1e15});
  ASSERT_TRUE(far.ok()) << far.status();
  const PipelineStagePlan& stage = plan.stages[1].pipeline.stages[0];
  double operations = 0;
  for (size_t i = 0; i < stage.sent.size(); ++i) {
    operations += static_cast<double>(stage.sent[i].operations);
  }
  // Those of the compute lane alone are all in a row.
  EXPECT_GT(far->planned, 20);
  EXPECT_LE(far->planned, 0.012 + operations + 1e-6);
}

// Both ways at once: where copies are all that takes time, a step is no shorter
// than those of a way, and shorter than those of both.
// The visit works for 10 ms after it has posted all, so 5 of 15 are left of all
// together, and not 15 of each.
TEST_F(StepTraceTest, WorkHidesWhatAVisitHasPosted) {
  const Link link = {.latency = 0.015, .bytes_per_second = 1e15};
  Took forward{.all = 30};
  const auto took = [&](int, const Instruction& at, int) {
    return ToString(at) == "F(1,a)" ? forward : Took();
  };
  RunPlan plan;
  const auto apart = Time("{ tensor = 2 }", took, link, &plan);
  ASSERT_TRUE(apart.ok()) << apart.status();
  const PipelineStagePlan& stage = plan.stages[1].pipeline.stages[0];
  for (size_t i = 0; i < stage.sent.size(); ++i) {
    if (ToString(stage.program.instructions[i]) != "F(1,a)") continue;
    forward.posted = stage.sent[i].each.size();
  }
  ASSERT_GT(forward.posted, 1);
  forward.awaited = 10;
  const auto beside = Time("{ tensor = 2 }", took, link);
  ASSERT_TRUE(beside.ok()) << beside.status();
  const auto posted = static_cast<double>(forward.posted);
  EXPECT_NEAR(apart->planned - beside->planned, 0.015 * posted - 0.005, 1e-4);
}

TEST_F(StepTraceTest, CopiesBetweenHomesTakeWhatTheBusTakes) {
  const ModelList models = BuiltInModels();
  PlanOptions options = Options("{ data = 2 }");
  options.sets.push_back(
      "stage.1.offload={ rows = [{ match = \"blocks/*\", weights = \"host\", "
      "gradients = \"host\" }] }");
  const absl::StatusOr<RunPlan> plan = PlanRun(options, models);
  ASSERT_TRUE(plan.ok()) << plan.status();
  Write(plan->stages[1], [](int, const Instruction& at, int) -> Took {
    return {at.op == Op::kFetch ? 5.0 : 0, {}};
  });
  double fetches = 0, evictions = 0;
  for (const Instruction& at :
       plan->stages[1].pipeline.stages[0].program.instructions) {
    fetches += at.op == Op::kFetch ? 1 : 0;
    evictions += at.op == Op::kEvict ? 1 : 0;
  }
  ASSERT_GT(fetches, evictions);
  const auto uses_over = [&](const Link& bus) {
    options.trace = Path();
    options.bus = bus;
    const TracedTime time = PlanRun(options, models)->stages[1].traced.value();
    EXPECT_EQ(time.lanes.size(), 1U);
    EXPECT_EQ(time.lanes[0].rank, 0);
    std::map<Lane, double> busy;
    // Two lanes share each way.
    for (const LaneUse& use : time.lanes[0].uses) {
      const Lane way = IsToDevice(use.lane) ? Lane::kIn
                       : IsToHost(use.lane) ? Lane::kOut
                                            : use.lane;
      busy[way] += use.busy;
    }
    busy[Lane::kCompute] = time.planned;
    return busy;
  };
  // A bus hides what copying took by itself, or leaves it.
  const std::map<Lane, double> none = uses_over({});
  EXPECT_NEAR(none.at(Lane::kIn), 0.005 * fetches, kNear);
  EXPECT_FALSE(none.contains(Lane::kOut));
  const std::map<Lane, double> slow =
      uses_over({.latency = 0.5, .bytes_per_second = 2000});
  EXPECT_NEAR(slow.at(Lane::kIn), fetches, kNear);
  EXPECT_NEAR(slow.at(Lane::kOut), evictions, kNear);
  // Of two lanes latencies overlap, half of each.
  EXPECT_GE(slow.at(Lane::kCompute), fetches / 2 - kNear);
  EXPECT_LT(slow.at(Lane::kCompute), fetches + evictions);
}

TEST_F(StepTraceTest, SaysWhatItCannotUse) {
  const ModelList models = BuiltInModels();
  const auto nothing = [](int, const Instruction&, int) { return Took(); };
  ASSERT_TRUE(Time("{ data = 2 }", nothing).ok());
  PlanOptions other = Options("{ pipeline = 2 }");
  other.trace = Path();
  EXPECT_THAT(
      std::string(PlanRun(other, models).status().message()),
      HasSubstr("none of its steps belongs to a stage of this recipe on 2 "
                "rank(s); trace the same recipe"));
  for (const char* const text : {"no json", "{}", R"({"traceEvents": [{}]})"}) {
    ASSERT_TRUE(WriteFile(Path(), text).ok());
    EXPECT_THAT(std::string(PlanRun(other, models).status().message()),
                HasSubstr("give a file of train --trace"))
        << text;
  }
}

}  // namespace
}  // namespace delink::testing::step_trace_test
