// The simulated step on the machine of a file: how it moves with the machine,
// and its trace.
#include "recipes/run/dry_run/machine_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/json.h"
#include "recipes/plan/plan.h"
#include "recipes/plan/pseudo_plan.h"
#include "recipes/schema/machine_file.h"
#include "tests/testing/cpu_rates.h"
#include "tests/testing/source_path.h"
#include "tests/testing/temp_dir.h"

namespace delink::testing::machine_step_test {
namespace {

using offload::MachineRates;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Two nodes of two GPUs, whose exchanges take about as long as their products.
MachineRates Small() {
  MachineRates machine = CpuRates(1e11, 1e9, 1e10);
  machine.device = {.kind = "cuda", .name = "Abacus 9"};
  machine.tier.price = 2;
  machine.tier.watts = 500;
  machine.nodes = 2;
  machine.devices = 2;
  machine.disk = {.bytes = int64_t{1} << 40, .read = 1e9, .write = 1e8};
  machine.inside = {.latency = 1e-5, .bytes_per_s = 1e9};
  machine.between = {.latency = 1e-4, .bytes_per_s = 1e8, .links = 1};
  return machine;
}

using Change = std::function<void(MachineRates&)>;

class MachineStepTest : public ::testing::Test {
 protected:
  absl::StatusOr<RunPlan> Plan(const std::string& layout, const Change& change,
                               PlanOptions options = {.ranks = 4}) const {
    MachineRates machine = Small();
    if (change != nullptr) change(machine);
    EXPECT_TRUE(WriteMachine(machine, options.machine = path_).ok());
    options.recipe = SourcePath("recipes/tiny.toml");
    options.sets = Sets(layout);
    absl::StatusOr<RunPlan> plan = PlanRun(options, BuiltInModels());
    if (plan.ok()) FindPeak(*plan);
    return plan;
  }
  static std::vector<std::string> Sets(const std::string& layout) {
    return {"model.vocab=61",
            "data.batch=8",
            "run.micro_batch=1",
            "run.checkpoint_every=7",
            "stage.0.parallel=" + layout,
            "stage.1.parallel=" + layout};
  }
  RunPlan Good(const std::string& layout, const Change& change = nullptr,
               PlanOptions options = {.ranks = 4}) const {
    absl::StatusOr<RunPlan> plan = Plan(layout, change, std::move(options));
    EXPECT_TRUE(plan.ok()) << plan.status();
    return *std::move(plan);
  }
  double Seconds(const std::string& layout, const Change& change = nullptr,
                 PlanOptions options = {.ranks = 4}) const {
    const RunPlan plan = Good(layout, change, std::move(options));
    double sum = 0;
    for (const auto& [word, seconds] : plan.stages[1].simulated->path.parts) {
      sum += seconds;
    }
    EXPECT_NEAR(sum, plan.stages[1].simulated->seconds, 1e-9 * sum);
    return plan.stages[1].simulated->seconds;
  }

  TempDir dir_;
  const std::string path_ = dir_ / "m.toml";
};

constexpr char kLayouts[][48] = {
    "{ data = 4 }", "{ data = 4, zero = 3 }", "{ pipeline = 4 }",
    "{ pipeline = 2, data = 2, zero = 1 }", "{ tensor = 2, data = 2 }"};

TEST_F(MachineStepTest, MovesAsTheMachineDoes) {
  for (const std::string layout : kLayouts) {
    SCOPED_TRACE(layout);
    const double before = Seconds(layout);
    EXPECT_GT(Seconds(layout, [](auto& m) { m.between.bytes_per_s /= 2; }),
              before);
    EXPECT_GT(Seconds(layout, [](auto& m) { m.between.latency *= 2; }), before);
    EXPECT_LT(Seconds(layout, [](auto& m) { m.between.links = 2; }), before);
    EXPECT_GT(Seconds(layout, [](auto& m) { m.inside.latency = 1e-3; }),
              before);
    const double slow =
        Seconds(layout, [](auto& m) { m.slow = {{.node = 1, .speed = 0.5}}; });
    EXPECT_GT(slow, before);
    EXPECT_GT(slow * 1.0001, Seconds(layout, [](auto& m) {
                m.slow = {{.node = 1, .speed = 0.9}};
              }));
    // Another node has no part in it.
    EXPECT_EQ(Seconds(layout,
                      [](auto& m) {
                        m.nodes = 3;
                        m.slow = {{.node = 2, .speed = 0.5}};
                      }),
              before);
    // Twice as fast in all: half of the time.
    EXPECT_NEAR(Seconds(layout,
                        [](auto& m) {
                          for (auto& rate : m.matmul) rate.flops_per_s *= 2;
                          m.tier.bytes_per_s *= 2;
                          m.memory.rewrite *= 2;
                          m.inside.bytes_per_s *= 2;
                          m.inside.latency /= 2;
                          m.between.bytes_per_s *= 2;
                          m.between.latency /= 2;
                        }),
                before / 2, 1e-6 * before);
  }
}

TEST_F(MachineStepTest, AGroupOfANodeDoesNotDependOnTheNetworkBetween) {
  const PlanOptions two = {.ranks = 2};
  for (const std::string layout :
       {"{ data = 2 }", "{ tensor = 2, tensor_across_nodes = true }",
        "{ pipeline = 2 }"}) {
    const auto half = [](auto& m) { m.between.bytes_per_s /= 2; };
    EXPECT_EQ(Seconds(layout, half, two), Seconds(layout, nullptr, two));
    const PlanOptions apart = {.ranks = 2, .ranks_per_node = 1};
    EXPECT_GT(Seconds(layout, half, apart), Seconds(layout, nullptr, apart));
  }
}

TEST_F(MachineStepTest, ASlowNodeIsWaitedFor) {
  const RunPlan plan = Good(
      "{ data = 4 }", [](auto& m) { m.slow = {{.node = 0, .speed = 0.25}}; });
  const CriticalPath& path = plan.stages[1].simulated->path;
  EXPECT_LT(path.rank, 2);
  for (const auto& [word, seconds] : path.parts) {
    EXPECT_NE(word, kForSlowerRanks);
  }
}

// AdamW: weights, m and v in f32, and a little padding. Two nodes save about a
// half each.
// Kernels of two threads leave a machine of two none for copies, which hide
// under visits on others.
TEST_F(MachineStepTest, LanesOfABusyCpuTakeTurns) {
  const auto copies = [&](int threads) {
    MachineRates machine = Small();
    machine.device.kind = "cpu";
    machine.devices = 1;
    machine.threads = threads;
    EXPECT_TRUE(WriteMachine(machine, path_).ok());
    const absl::StatusOr<RunPlan> plan = PlanRun(
        {.recipe = SourcePath("recipes/tiny.toml"),
         .sets = {"model.vocab=61", "model.layers=8", "run.order=layer",
                  "run.threads=2", "stage.1.offload={ weights = \"host\" }"},
         .ranks = 1,
         .machine = path_},
        BuiltInModels());
    EXPECT_TRUE(plan.ok()) << plan.status();
    double seconds = 0;
    for (const auto& [word, part] : plan->stages[1].simulated->path.parts) {
      if (word == "copies between host and device") seconds = part;
    }
    return seconds;
  };
  EXPECT_GT(copies(4), 0);
  EXPECT_GT(copies(2), 5 * copies(4));
}

TEST_F(MachineStepTest, ACheckpointHasEachValueOnce) {
  const RunPlan one = Good("{}", nullptr, {.ranks = 1});
  const RunPlan four = Good("{ data = 4 }");
  for (const size_t s : {0, 1}) {
    const int64_t all = 3 * 4 * one.stages[s].unique_parameters;
    const int64_t saved = one.stages[s].simulated->save_bytes;
    EXPECT_GE(saved, all);
    EXPECT_LT(saved, all + all / 20);
    EXPECT_GE(four.stages[s].simulated->save_bytes, all / 2);
    EXPECT_LT(four.stages[s].simulated->save_bytes, all);
  }
}

TEST_F(MachineStepTest, ARunAddsUp) {
  const RunPlan plan = Good("{ data = 4 }");
  double seconds = 0;
  for (const StagePlan& stage : plan.stages) {
    const MachineStep& step = *stage.simulated;
    int64_t saves = stage.end % 7 != 0 ? 1 : 0;
    for (int64_t s = stage.begin + 1; s <= stage.end; ++s) saves += s % 7 == 0;
    EXPECT_EQ(step.saves, saves);
    EXPECT_DOUBLE_EQ(step.save_seconds,
                     static_cast<double>(step.save_bytes) / 1e8);
    seconds += static_cast<double>(stage.steps()) * step.seconds +
               static_cast<double>(saves) * step.save_seconds +
               step.switch_seconds;
    EXPECT_NEAR(step.utilization, stage.flops_per_step / (step.seconds * 4e11),
                1e-9);
  }
  EXPECT_EQ(plan.stages[0].simulated->switch_bytes, 0);
  const MachineStep& real = *plan.stages[1].simulated;
  EXPECT_DOUBLE_EQ(real.switch_seconds,
                   1e-4 + static_cast<double>(real.switch_bytes) / 5e7);
  EXPECT_DOUBLE_EQ(plan.seconds(), seconds);
  const nlohmann::json json = ParseJson(ToJson(plan, false));
  const double hours = seconds / 3600;
  EXPECT_NEAR(json.at("days").get<double>(), hours / 24, 1e-9);
  EXPECT_NEAR(json.at("energy_kwh").get<double>(), 4 * 0.5 * hours, 1e-9);
  EXPECT_NEAR(json.at("cost").get<double>(), 4 * 2 * hours, 1e-9);
  const nlohmann::json& stage = json.at("stages").at(1);
  double sum = 0;
  for (const auto& [word, part] : stage.at("critical_path").items()) {
    sum += part.get<double>();
  }
  EXPECT_NEAR(sum, stage.at("seconds_per_step").get<double>(), 1e-9);
  EXPECT_THAT(
      ToText(plan, false),
      AllOf(HasSubstr("critical path, of rank "), HasSubstr("% products"),
            HasSubstr("gradients between nodes"),
            Not(HasSubstr("waiting for the pipeline"))));
  EXPECT_THAT(ToText(Good("{ pipeline = 4 }"), false),
              HasSubstr("waiting for the pipeline"));
}

// `plan --trace` reads what `--trace-out` wrote.
TEST_F(MachineStepTest, ItsTraceReadsBack) {
  for (const std::string layout : kLayouts) {
    SCOPED_TRACE(layout);
    const std::string file = dir_ / "trace.json";
    const RunPlan written =
        Good(layout, nullptr, {.ranks = 4, .trace_out = file});
    const absl::StatusOr<RunPlan> read =
        PlanRun({.recipe = SourcePath("recipes/tiny.toml"),
                 .sets = Sets(layout),
                 .ranks = 4,
                 .trace = file},
                BuiltInModels());
    ASSERT_TRUE(read.ok()) << read.status();
    for (const size_t s : {0, 1}) {
      const double seconds = written.stages[s].simulated->seconds;
      const TracedTime& traced = read->stages[s].traced.value();
      EXPECT_EQ(traced.steps, 2);
      EXPECT_NEAR(traced.traced, seconds, 1e-4 * seconds);
      // A trace does not say that lanes share a line.
      EXPECT_NEAR(traced.planned, seconds, 0.05 * seconds);
    }
  }
}

// What pseudo steps cost beside the real one, by parts.
TEST_F(MachineStepTest, TheCostOfSharingIsSaid) {
  PlanOptions options = {.ranks = 4};
  RunPlan plan = Good("{ pipeline = 4 }", nullptr, options);
  options.recipe = SourcePath("recipes/tiny.toml");
  options.machine = path_;
  options.sets = Sets("{ pipeline = 4 }");
  FindPseudo(options, BuiltInModels(), plan);
  ASSERT_EQ(plan.pseudo.size(), 2u);
  EXPECT_EQ(plan.pseudo[0].depth, 4);
  EXPECT_EQ(plan.pseudo[1].depth, 2);  // and two ends, on four ranks
  EXPECT_LT(plan.pseudo[1].seconds, plan.pseudo[0].seconds);
  const nlohmann::json all = ParseJson(ToJson(plan, false));
  for (const nlohmann::json& of : all.at("cost_of_sharing")) {
    double more = 0;
    for (const auto& [word, seconds] : of.at("more_seconds").items()) {
      more += seconds.get<double>();
    }
    EXPECT_NEAR(more,
                of.at("seconds_per_step").get<double>() -
                    plan.stages[1].simulated->seconds,
                1e-9);
  }
  // Gradients of all blocks are reduced between all pipeline stages.
  EXPECT_THAT(ToText(plan, false),
              AllOf(HasSubstr("s reductions of gradients between nodes"),
                    HasSubstr("it saves no time: a real step takes"),
                    HasSubstr("stage pseudo with depth=2, 2 of 4 blocks")));

  // A recipe of one stage, beside one that shares.
  options = {.ranks = 4};
  options.sets = {"model.vocab=61", "data.batch=8"};
  options.recipe = SourcePath("recipes/quickstart_scratch.toml");
  options.machine = path_;
  absl::StatusOr<RunPlan> scratch = PlanRun(options, BuiltInModels());
  ASSERT_TRUE(scratch.ok()) << scratch.status();
  FindPseudo(options, BuiltInModels(), *scratch);
  ASSERT_EQ(scratch->pseudo.size(), 1u);
  EXPECT_LT(scratch->pseudo[0].account.weights,
            scratch->stages[0].account.weights);
}

TEST_F(MachineStepTest, EveryRankOfTenTrillionInTime) {
  const auto begin = std::chrono::steady_clock::now();
  const absl::StatusOr<RunPlan> plan =
      PlanRun({.recipe = SourcePath("recipes/m6_10t_h200.toml"),
               .ranks = 512,
               .machine = SourcePath("machines/h200-8x64.toml")},
              BuiltInModels());
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - begin;
  EXPECT_LT(took.count(), 60);
  const StagePlan& real = plan->stages[1];
  ASSERT_EQ(real.mesh.ranks(), 512);
  // Products take at least this.
  EXPECT_GT(real.simulated->seconds, real.flops_per_step / (512 * 785e12));
  EXPECT_LT(real.simulated->seconds, 60);
  EXPECT_LT(ToText(*plan, false).size(), 30'000u);
}

TEST_F(MachineStepTest, ATraceOfThisMachineSaysNothingOfAnother) {
  PlanOptions options = {.ranks = 4, .trace = dir_ / "trace.json"};
  EXPECT_THAT(
      std::string(Plan("{ data = 4 }", nullptr, options).status().message()),
      HasSubstr("--machine computes those of another; leave one"));
  options = {.ranks = 4, .trace_out = dir_ / "none/trace.json"};
  EXPECT_THAT(
      std::string(Plan("{ data = 4 }", nullptr, options).status().message()),
      HasSubstr("--trace-out: "));
}

}  // namespace
}  // namespace delink::testing::machine_step_test
