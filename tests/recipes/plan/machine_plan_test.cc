// Plans for the machine of a file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "recipes/plan/plan.h"
#include "recipes/run/dry_run/planned_machine.h"
#include "recipes/schema/machine_file.h"
#include "tests/testing/cpu_rates.h"
#include "tests/testing/source_path.h"
#include "tests/testing/temp_dir.h"

namespace delink::testing::machine_plan_test {
namespace {

using offload::MachineRates;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Words = std::vector<std::string>;

// Three nodes of two GPUs.
MachineRates Small() {
  MachineRates machine = CpuRates(1e12, 1e9, 1e10);
  machine.device = {.kind = "cuda", .name = "Abacus 9"};
  machine.nodes = 3;
  machine.devices = 2;
  machine.inside = {.latency = 1e-6, .bytes_per_s = 1e10};
  machine.between = {.latency = 1e-6, .bytes_per_s = 1e9, .links = 1};
  return machine;
}

class PlanOfMachine : public ::testing::Test {
 protected:
  // Of a recipe that asks for the CPU, for this machine or that of a file.
  absl::StatusOr<RunPlan> Plan(const std::optional<MachineRates>& machine,
                               PlanOptions options) const {
    options.recipe = SourcePath("recipes/tiny.toml");
    const Words sets = {"model.vocab=61", "data.batch=8", "run.micro_batch=1"};
    options.sets.insert(options.sets.begin(), sets.begin(), sets.end());
    if (machine.has_value()) {
      EXPECT_TRUE(WriteMachine(*machine, path_).ok());
      options.machine = path_;
    }
    absl::StatusOr<RunPlan> plan = PlanRun(options, BuiltInModels());
    if (plan.ok() && machine.has_value()) FindPeak(*plan);
    return plan;
  }
  RunPlan Good(const std::optional<MachineRates>& machine,
               const PlanOptions& options) const {
    absl::StatusOr<RunPlan> plan = Plan(machine, options);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return *std::move(plan);
  }

  TempDir dir_;
  const std::string path_ = dir_ / "m.toml";
};

TEST_F(PlanOfMachine, RanksFillItsNodes) {
  const RunPlan plan = Good(Small(), {.ranks = 4});
  EXPECT_EQ(plan.device, DeviceKind::kCuda);
  EXPECT_THAT(plan.stages[0].ranks, HasSubstr("2 nodes of 2"));
  EXPECT_DOUBLE_EQ(plan.peak_flops, 4e12);
  const RunPlan spread = Good(Small(), {.ranks = 2, .ranks_per_node = 1});
  EXPECT_THAT(spread.stages[0].ranks, HasSubstr("2 nodes of 1"));
  EXPECT_THAT(
      ToText(plan, false),
      AllOf(HasSubstr("machine " + path_ +
                      ": 3 node(s) of 2 device(s)"
                      ", cuda 'Abacus 9' of 1.0 TiB; 4 rank(s) take "
                      "2 node(s)\n  a rank fits: it takes at most "),
            HasSubstr(", as in " + path_), Not(HasSubstr("plans only"))));
}

TEST_F(PlanOfMachine, ARankFitsToTheByte) {
  MachineRates machine = Small();
  const int64_t bytes = Good(machine, {}).peak_bytes();
  for (const int64_t less : {0, 1}) {
    machine.tier.memory = bytes - less;
    const RunPlan plan = Good(machine, {});
    EXPECT_THAT(
        ToText(plan, false),
        HasSubstr(less == 0 ? "a rank fits: " : "a rank does not fit: "));
    const auto json = nlohmann::json::parse(ToJson(plan, false))["machine"];
    EXPECT_EQ(json["fits"], less == 0);
    EXPECT_EQ(json["device_bytes"], bytes - less);
  }
}

// On the CPU, ranks share a node's memory and rates.
TEST_F(PlanOfMachine, RanksOfACpuShareIt) {
  MachineRates machine = CpuRates(1e12, 1e9, 1e10);
  machine.threads = 4;
  const RunPlan plan = Good(machine, {.ranks = 2});
  EXPECT_EQ(plan.threads, 2);
  EXPECT_DOUBLE_EQ(plan.peak_flops, 1e12);
  EXPECT_EQ(plan.machine->rank_memory(), machine.tier.memory / 2);
}

TEST_F(PlanOfMachine, OffloadingHasItsRates) {
  const auto plan = [&](double bus) {
    MachineRates machine = Small();
    machine.pinned = {bus, bus, bus, bus};
    machine.host_bytes = 1 << 10;
    return Good(machine, {.sets = {"stage.1.offload={state=\"host\"}"}});
  };
  const RunPlan slow = plan(1e6), fast = plan(1e9);
  const OffloadPlan& of = *slow.stages[1].offload;
  EXPECT_NEAR(of.step.Busy(Lane::kIn),
              1e3 * fast.stages[1].offload->step.Busy(Lane::kIn),
              1e-6 * of.step.seconds);
  EXPECT_EQ(of.rates, "of " + path_);
  EXPECT_THAT(ToText(slow, false), HasSubstr(" (a node has 1.0 KiB); a step"));
}

TEST_F(PlanOfMachine, BundledMachinesRunExceptTheV100) {
  for (const char* name : {"v100-32gb-8x64", "a100-80gb-8", "h100-80gb-8x64",
                           "h200-8x64", "b200"}) {
    SCOPED_TRACE(name);
    const std::string path =
        SourcePath("machines/" + std::string(name) + ".toml");
    const RunPlan plan =
        Good({}, {.sets = {"run.precision=bf16"}, .ranks = 8, .machine = path});
    const bool only =
        ToText(plan, false)
            .find(
                "for plans only: kernels need compute capability "
                "8.0, and these devices have 7.0") != std::string::npos;
    EXPECT_EQ(only, std::string(name).starts_with("v100"));
  }
}

// One line each.
TEST_F(PlanOfMachine, WhatDoesNotMatchIsRefused) {
  MachineRates slow = Small(), no_bf16 = Small(), many = Small();
  slow.inside.bytes_per_s = 0;
  no_bf16.matmul.pop_back();
  many.between.links = 3;
  const struct {
    MachineRates machine;
    PlanOptions options;
    std::string says;
  } cases[] = {
      {Small(),
       {.ranks = 8},
       ": has room for 6 rank(s), 2 a node, but the plan "
       "is for 8 (3 node(s) of 2 device(s), "},
      {Small(),
       {.ranks = 4, .ranks_per_node = 1},
       ": has room for 3 rank(s), 1 "
       "a node, but the plan is"},
      {Small(), {.ranks = 4, .ranks_per_node = 4}, " has room for 2 rank(s) ("},
      {Small(),
       {.sets = {"run.device=cpu"}},
       ": has devices of kind cuda, but "
       "--device (run.device) is cpu; "},
      {CpuRates(1, 1, 1),
       {.sets = {"run.device=cuda"}},
       ": has devices of kind "
       "cpu, but --device "},
      {CpuRates(1, 1, 1), {.ranks = 2}, ": has room for 1 rank(s)"},
      {no_bf16,
       {.sets = {"run.precision=bf16"}},
       ": has no rate of products in "
       "bf16; add a [[products]]"},
      {slow, {}, ": network.inside.link_bytes_per_s: required, but not given"},
      {many, {}, ": network.between.links: 3 links, but a node has 2 device"},
  };
  for (const auto& [machine, options, says] : cases) {
    const absl::Status status = Plan(machine, options).status();
    const std::string told(status.message());
    EXPECT_THAT(told, AllOf(HasSubstr(path_), HasSubstr(says)));
    EXPECT_EQ(told.find('\n'), std::string::npos) << told;
  }
  EXPECT_THAT(std::string(Plan({}, {.machine = SourcePath("recipes/tiny.toml")})
                              .status()
                              .message()),
              HasSubstr("tiny.toml: has no [machine] table"));
}

}  // namespace
}  // namespace delink::testing::machine_plan_test
