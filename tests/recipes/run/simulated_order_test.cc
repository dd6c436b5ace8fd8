// Over delayed links, events of real steps come in the order of the simulated
// step, instruction by instruction and over all ranks, wherever the simulated
// step has more than a margin between them. The costs are those of a run
// without delays.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/base/status_macros.h"
#include "framework/comm/delayed_communicator.h"
#include "framework/comm/thread_communicator.h"
#include "framework/step/time/step_time.h"
#include "framework/step/time/trace.h"
#include "recipes/plan/plan.h"
#include "recipes/run/stage/stage_run.h"
#include "tests/recipes/run/constant_batch.h"
#include "tests/recipes/run/recipe_env.h"
#include "tests/testing/source_path.h"

namespace delink::testing::simulated_order_test {
namespace {

constexpr int kRanks = 2;
constexpr int64_t kFirst = 3, kLast = 8;
constexpr int64_t kVocab = 61;
constexpr Link kLink = {.latency = 0.012, .bytes_per_second = 4e6};
// A busy machine holds a thread up for milliseconds, of which medians of the
// traced steps keep less.
constexpr double kMargin = 0.005;
const std::string kRecipe = SourcePath("recipes/tiny.toml");

std::vector<std::string> Sets(const std::string& layout) {
  return {absl::StrCat("model.vocab=", kVocab),
          "model.layers=2",
          "data.batch=8",
          "data.seq=8",
          "run.micro_batch=2",
          "run.threads=1",
          "stage.0.share=none",
          "stage.0.parallel=" + layout,
          "stage.1.parallel=" + layout};
}

// Traces by rank.
std::vector<std::unique_ptr<Trace>> Run(const std::string& layout,
                                        const Link& link) {
  std::vector<std::unique_ptr<Trace>> traces;
  for (int rank = 0; rank < kRanks; ++rank) {
    traces.push_back(std::make_unique<Trace>(kFirst, kLast));
  }
  const absl::Status status =
      RunRanks(kRanks, [&](Communicator& comm) -> absl::Status {
        DELINK_ASSIGN_OR_RETURN(auto inner, comm.Split(0, comm.rank()));
        DELINK_ASSIGN_OR_RETURN(const auto world,
                                DelayExchanges(std::move(inner), link));
        DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<RecipeEnv> recipe,
                                NewRecipeEnv(kRecipe, Sets(layout), *world));
        RunEnv& env = recipe->env;
        env.lane_threads = true;
        env.trace = At(traces, comm.rank()).get();
        DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<StageRun> stage,
                                StageRun::Create(env, 0));
        stage->store().InitWeights(1);
        for (int64_t step = 1; step <= kLast; ++step) {
          DELINK_RETURN_IF_ERROR(
              stage->executor()
                  .TrainStep(ConstantBatch(stage->cut()), step, 1e-3)
                  .status());
        }
        return stage->executor().Drain();
      });
  EXPECT_TRUE(status.ok()) << std::string(status.message());
  return traces;
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.at(values.size() / 2);
}

// By instruction, what a rank's thread worked on it, without exchanges.
std::vector<double> OwnSeconds(const Trace& trace, const Program& program) {
  std::map<std::pair<int64_t, int32_t>, double> exchanged;
  for (const Trace::Exchange& of : trace.exchanges()) {
    exchanged[{of.step, of.index}] += Seconds(of.end - of.begin);
  }
  std::vector<std::vector<double>> own(program.instructions.size());
  for (const Trace::Span& span : trace.spans()) {
    const Instruction& at = At(program.instructions, span.index);
    const bool computes =
        IsVisit(at) || at.op == Op::kUpdate || at.op == Op::kSquares;
    At(own, span.index)
        .push_back(computes ? Seconds(span.end - span.begin) -
                                  exchanged[{span.step, span.index}]
                            : 0);
  }
  std::vector<double> medians;
  for (std::vector<double>& of : own) medians.push_back(Median(std::move(of)));
  return medians;
}

struct Event {
  std::string name;
  double simulated = 0;
  double real = 0;  // median
};

// Seconds since the last rank's compute lane was done with the step before.
std::vector<Event> EventsOf(const std::vector<Column>& columns,
                            const StepTime& time,
                            const std::vector<std::unique_ptr<Trace>>& traces) {
  const size_t stages = columns.front().size();
  const auto rank_of = [&](size_t r) -> const RankProgram& {
    return columns[r / stages][r % stages];
  };
  using Clock = Trace::Clock;
  std::map<int64_t, Clock::time_point> ends;  // of the compute lanes
  for (size_t r = 0; r < kRanks; ++r) {
    for (const Trace::Span& span : At(traces, rank_of(r).rank)->spans()) {
      const Program& program = *rank_of(r).program;
      if (At(program.instructions, span.index).lane != Lane::kCompute) continue;
      ends[span.step] = std::max(ends[span.step], span.end);
    }
  }
  std::vector<Event> events;
  for (size_t r = 0; r < kRanks; ++r) {
    const RankProgram& rank = rank_of(r);
    const size_t count = rank.program->instructions.size();
    std::vector<std::vector<double>> begins(count), dones(count);
    for (const Trace::Span& span : At(traces, rank.rank)->spans()) {
      if (span.step == kFirst) continue;
      const Clock::time_point zero = ends.at(span.step - 1);
      At(begins, span.index).push_back(Seconds(span.begin - zero));
      At(dones, span.index).push_back(Seconds(span.end - zero));
    }
    for (size_t i = 0; i < count; ++i) {
      const Interval& of = time.intervals()[r][i];
      const std::string name = delink::NameOf(rank, static_cast<int32_t>(i));
      const Lane lane = rank.program->instructions[i].lane;
      // A thread posts an exchange of its lane when the lane is free; the
      // simulated one begins when all ranks have.
      if (lane == Lane::kCompute) {
        events.push_back({name + " begins", of.begin - time.begin,
                          Median(std::move(begins[i]))});
      }
      events.push_back(
          {name + " ends", of.end - time.begin, Median(std::move(dones[i]))});
    }
  }
  return events;
}

void ExpectTheOrderOf(const std::string& layout) {
  const absl::StatusOr<RunPlan> plan =
      PlanRun({.recipe = kRecipe, .sets = Sets(layout), .ranks = kRanks},
              BuiltInModels());
  ASSERT_TRUE(plan.ok()) << plan.status();
  const StagePlan& stage = plan->stages[0];
  const std::vector<Column> columns = ColumnsOf(stage.pipeline, stage.mesh);
  std::map<int, std::vector<double>> own;  // by rank
  const auto undelayed = Run(layout, {});
  for (const Column& column : columns) {
    for (const RankProgram& rank : column) {
      own[rank.rank] = OwnSeconds(*At(undelayed, rank.rank), *rank.program);
    }
  }
  const Costs costs = CostsOver(
      {.network = kLink, .neighbours = kLink, .visits = kLink},
      [&](const RankProgram& rank, int32_t index) {
        return MeasuredTime{.own = At(own.at(rank.rank), index)};
      },
      [&](const RankProgram& rank, int32_t index) {
        return At(At(stage.pipeline.stages, rank.program->stage).sent, index);
      });
  const auto time = TimeStep(columns, costs, /*drains=*/false);
  ASSERT_TRUE(time.ok()) << time.status();
  EXPECT_GT(time->seconds, 4 * kLink.latency);

  std::vector<Event> events = EventsOf(columns, *time, Run(layout, kLink));
  std::ranges::sort(events, {}, &Event::simulated);
  int64_t compared = 0;
  for (const Event& one : events) {
    for (const Event& other : events) {
      if (other.simulated < one.simulated + kMargin) continue;
      ++compared;
      EXPECT_LT(one.real, other.real)
          << one.name << " at " << one.simulated << ", " << other.name << " at "
          << other.simulated;
    }
  }
  // Most pairs.
  EXPECT_GT(static_cast<double>(compared),
            0.3 * static_cast<double>(events.size() * events.size()) / 2);
}

TEST(SimulatedOrder, OfAPipeline) { ExpectTheOrderOf("{ pipeline = 2 }"); }

TEST(SimulatedOrder, OfAnInterleavedPipeline) {
  ExpectTheOrderOf("{ pipeline = 2, schedule = \"interleaved\" }");
}

TEST(SimulatedOrder, OfDataRanks) {
  ExpectTheOrderOf("{ data = 2, zero = 1 }");
}

TEST(SimulatedOrder, OfGathers) { ExpectTheOrderOf("{ data = 2, zero = 3 }"); }

TEST(SimulatedOrder, OfTensorRanks) { ExpectTheOrderOf("{ tensor = 2 }"); }

}  // namespace
}  // namespace delink::testing::simulated_order_test
