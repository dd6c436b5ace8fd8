// Plans of stages with planes at home on the host: within budgets, and why.
#include "recipes/plan/offload_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "recipes/plan/plan.h"
#include "recipes/schema/machine_file.h"
#include "tests/testing/cpu_rates.h"
#include "tests/testing/source_path.h"
#include "tests/testing/temp_dir.h"

namespace delink::testing::offload_plan_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Words = std::vector<std::string>;

const std::string kTiny = SourcePath("recipes/tiny.toml");

class PlanOfOffload : public ::testing::Test {
 protected:
  PlanOfOffload() { setenv("XDG_CACHE_HOME", cache_.path().c_str(), 1); }

  static absl::StatusOr<RunPlan> Plan(const Words& sets,
                                      const std::string& offload,
                                      int64_t ranks = 1, int64_t per_node = 0) {
    Words all = {"model.vocab=61", "run.threads=1", "model.layers=6",
                 "data.seq=8",     "data.batch=8",  "run.micro_batch=1"};
    all.insert(all.end(), sets.begin(), sets.end());
    all.push_back(absl::StrCat("stage.1.offload={", offload, "}"));
    return PlanRun({.recipe = kTiny,
                    .sets = all,
                    .ranks = ranks,
                    .ranks_per_node = per_node},
                   BuiltInModels());
  }
  static RunPlan Good(const Words& sets, const std::string& offload,
                      int64_t ranks = 1, int64_t per_node = 0) {
    absl::StatusOr<RunPlan> plan = Plan(sets, offload, ranks, per_node);
    EXPECT_TRUE(plan.ok()) << offload << ": " << plan.status();
    return *std::move(plan);
  }
  // The device's kernels and updates take next to nothing.
  static offload::MachineRates RatesWith(double bus, double memory) {
    offload::MachineRates rates = CpuRates(1e15, bus, memory);
    rates.tier.bytes_per_s = 1e12;
    rates.updates = {{offload::UpdatePlace::kDevice,
                      {.weights = DType::kF32, .gradients = DType::kF32},
                      1e12}};
    return rates;
  }
  void Keep(double bus, double memory) {
    const offload::MachineRates rates = RatesWith(bus, memory);
    const absl::StatusOr<std::string> path = offload::DefaultMachineRatesPath();
    ASSERT_TRUE(path.ok());
    ASSERT_TRUE(WriteMachine(rates, *path).ok());
  }

  TempDir cache_;
};

// Every one from that of all on the device to the least is kept, to the byte of
// the account; what is less is refused.
TEST_F(PlanOfOffload, EveryBudgetIsKept) {
  struct Case {
    int64_t ranks;
    Words sets;
  };
  const Case cases[] = {
      {1, {}},
      {2, {"stage.0.parallel.zero=1", "stage.1.parallel.zero=1"}},
      {2, {"stage.1.parallel.pipeline=2"}},
      // At the switch the second rank has more of the stage before.
      {2,
       {"stage.0.share=none", "stage.1.parallel.pipeline=2",
        "stage.1.parallel.layers=[1,5]"}},
      {2,
       {"stage.0.parallel.tensor=2", "optimizer.kind=muon",
        "optimizer.adamw_lr=1e-3"}}};
  for (const auto& [ranks, sets] : cases) {
    SCOPED_TRACE(absl::StrJoin(sets, " "));
    const RunPlan resident = Good(sets, "", ranks);
    const int64_t all = resident.peak_bytes();
    const int64_t step = all / 7;
    int64_t fits = 0;
    for (int64_t device = all; device > 0; device -= step) {
      const auto plan = Plan(sets, absl::StrCat("device=", device), ranks);
      if (!plan.ok()) {
        EXPECT_THAT(std::string(plan.status().message()),
                    HasSubstr("stage[1].offload.device: "));
        break;
      }
      const StagePlan& stage = plan->stages[1];
      EXPECT_LE(stage.account.total(), device);
      EXPECT_LE(stage.switch_bytes, device);
      EXPECT_EQ(stage.account.host > 0, device < all);
      ++fits;
    }
    EXPECT_GT(fits, 1);
    EXPECT_LT(fits, 8);
  }
}

TEST_F(PlanOfOffload, SlabsAddUpToTheAccount) {
  for (const std::string& offload :
       {std::string("resident=0.5"),
        std::string("state=\"host\",update=\"host\""),
        std::string("device=\"330KiB\",activations=\"device\"")}) {
    SCOPED_TRACE(offload);
    const RunPlan run = Good({"run.precision=bf16"}, offload);
    const StagePlan& stage = run.stages[1];
    ASSERT_TRUE(stage.offload.has_value());
    EXPECT_FALSE(run.stages[0].offload.has_value());
    int64_t here = 0, there = 0, copies = 0;
    for (const SlabHomes& of : stage.offload->slabs[0]) {
      here += of.device;
      there += of.host;
      if (of.row.weight.resident) copies += of.device;
    }
    EXPECT_EQ(here - copies, stage.account.planes());
    EXPECT_LE(copies, stage.account.fetched);
    EXPECT_EQ(there, stage.account.host);
    EXPECT_EQ(stage.offload->machine_host, stage.account.host);
    EXPECT_GT(there, 0);
  }
}

// What a plan says about each ZeRO stage is what a plan with it says of itself.
TEST_F(PlanOfOffload, SaysWhatEachZeroStageTakes) {
  const auto plan = [&](int zero) {
    return Good(
        {"run.order=layer", absl::StrCat("stage.1.parallel.zero=", zero)},
        "device=\"1GiB\"", 4);
  };
  const std::vector<ZeroPlan> zeros = plan(1).stages[1].zeros;
  ASSERT_EQ(zeros.size(), size_t{4});
  for (int zero = 0; zero < 4; ++zero) {
    const StagePlan stage = plan(zero).stages[1];
    EXPECT_EQ(zeros[zero].zero, zero);
    EXPECT_EQ(zeros[zero].device, stage.account.total());
    EXPECT_EQ(zeros[zero].reduced_bytes, stage.reduced_bytes);
    EXPECT_EQ(zeros[zero].gathered_bytes, stage.gathered_bytes);
    EXPECT_EQ(stage.zeros.size(), size_t{4});
  }
  EXPECT_LT(zeros[3].device, zeros[2].device);
  EXPECT_GT(zeros[3].gathered_bytes, zeros[1].gathered_bytes);
  // One rank shards nothing.
  EXPECT_THAT(Good({}, "device=\"1GiB\"").stages[1].zeros, IsEmpty());
}

// The least that a rank can take is with ZeRO-3 and the weights of one layer.
TEST_F(PlanOfOffload, NamesTheZeroStageThatWouldFit) {
  const auto with = [&](int64_t device, int zero) {
    return Plan({"run.order=layer", "stage.0.parallel.zero=3",
                 absl::StrCat("stage.1.parallel.zero=", zero)},
                absl::StrCat("weights=\"device\",gradients=\"device\",state="
                             "\"device\",activations=\"device\",device=",
                             device),
                4);
  };
  const auto told = [&](int64_t device) {
    return std::string(with(device, 0).status().message());
  };
  const auto most = [](const RunPlan& plan) {
    const StagePlan& stage = plan.stages[1];
    return std::max(stage.account.total(), stage.switch_bytes);
  };
  const int64_t prefetched = most(*with(1 << 30, 3));
  EXPECT_THAT(told(prefetched),
              AllOf(HasSubstr("; zero = 3 (stage[1].parallel) would take "),
                    Not(HasSubstr("without prefetch"))));
  EXPECT_THAT(told(prefetched - 1), HasSubstr(", without prefetch"));
  const absl::StatusOr<RunPlan> least = with(prefetched - 1, 3);
  ASSERT_TRUE(least.ok()) << least.status();
  EXPECT_LT(most(*least), prefetched);
  EXPECT_EQ(least->stages[1].offload->found->place.ahead, 0);
  EXPECT_THAT(told(most(*least) - 1), Not(HasSubstr("zero")));
  EXPECT_FALSE(with(most(*least) - 1, 3).ok());
}

TEST_F(PlanOfOffload, CountsAMachinesRanks) {
  const Words zero = {"stage.0.parallel.zero=1", "stage.1.parallel.zero=1"};
  const auto host = [&](int64_t ranks, int64_t per_node) {
    return Good(zero, "state=\"host\"", ranks, per_node)
        .stages[1]
        .offload->machine_host;
  };
  EXPECT_EQ(host(4, 0), 2 * host(4, 2));
  EXPECT_NEAR(static_cast<double>(host(4, 0)), static_cast<double>(host(1, 0)),
              0.2 * static_cast<double>(host(1, 0)));
}

// Where planes stay, activations are what can go.
TEST_F(PlanOfOffload, ActivationsGoWherePlanesStay) {
  const Words sets = {"data.seq=32", "run.recompute=none"};
  const std::string planes =
      "weights=\"device\",gradients=\"device\",state=\"device\"";
  const StagePlan all = Good(sets, planes).stages[1];
  const RunPlan run =
      Good(sets, absl::StrCat(planes, ",device=", all.account.total() - 1));
  const StagePlan& some = run.stages[1];
  EXPECT_LT(some.account.slots, all.account.slots);
  EXPECT_GT(some.offload->found->place.activations, 0);
  EXPECT_FALSE(some.offload->stored.empty());
  EXPECT_EQ(some.account.planes(), all.account.planes());
  EXPECT_EQ(some.account.host, some.offload->machine_host);
  EXPECT_GT(some.offload->step.Busy(Lane::kOut), 0);
  EXPECT_THAT(ToText(run, false), HasSubstr("  activations of blocks/"));
}

// Of what the keys have on the host it says nothing else.
TEST_F(PlanOfOffload, SaysWhatWasLeftOpen) {
  Keep(1e6, 1e12);
  const RunPlan fixed =
      Good({}, "device=\"1GiB\",state=\"host\",update=\"auto\"");
  // Steps whose copies take longest are no faster than these.
  const ForeseenStep& step = fixed.stages[1].offload->step;
  EXPECT_GE(step.seconds, (1 - 1e-9) * step.Busy(Lane::kIn));
  EXPECT_THAT(ToText(fixed, false),
              AllOf(HasSubstr("auto: all \"auto\" planes device-resident, "
                              "the host updates 25%, those needed last: "),
                    HasSubstr("if the device updates everything "),
                    Not(HasSubstr("; with all"))));
  // Gradients go, and state stays as it is said.
  const std::string state = "state=\"device\"";
  const StagePlan all = Good({}, state).stages[1];
  const RunPlan some =
      Good({}, absl::StrCat(state, ",device=", all.account.total() - 1));
  EXPECT_EQ(some.stages[1].offload->found->place.state, 0);
  EXPECT_THAT(ToText(some, false),
              HasSubstr("; with all of that on the device "));
}

// A plan may be for another machine than this one.
TEST_F(PlanOfOffload, SaysWhatThisMachineHasNot) {
  EXPECT_THAT(ToText(Good({}, "state=\"host\",host=\"1MiB\""), false),
              AllOf(HasSubstr(" of 1.0 MiB; a step"),
                    Not(HasSubstr("this machine has"))));
  EXPECT_THAT(ToText(Good({}, "state=\"host\",host=\"9000TiB\""), false),
              HasSubstr(" of 9000.0 TiB (this machine has "));
}

// On the CPU, whose ranks have one machine's memory and cores together.
TEST_F(PlanOfOffload, RanksOfAMachineShareItsRates) {
  Keep(1e9, 1e10);
  const Words zero = {"stage.0.parallel.zero=1", "stage.1.parallel.zero=1"};
  const auto lanes = [&](int64_t per_node) {
    return Good(zero, "state=\"host\",update=\"host\"", 4, per_node)
        .stages[1]
        .offload->step;
  };
  const ForeseenStep four = lanes(4), one = lanes(1);
  for (const Lane lane : {Lane::kCompute, Lane::kIn, Lane::kOut, Lane::kHost}) {
    EXPECT_GT(one.Busy(lane), 0);
    EXPECT_NEAR(four.Busy(lane), 4 * one.Busy(lane), 1e-9 * one.seconds);
  }
}

// With the file, where there is one.
TEST_F(PlanOfOffload, SaysWhyRatesAreAssumed) {
  const auto source = [](const Words& sets) {
    return Good(sets, "resident=0.5").stages[1].offload->rates;
  };
  EXPECT_THAT(source({}),
              HasSubstr("since no rates of this machine are stored"));
  offload::MachineRates rates = RatesWith(1e9, 1e10);
  rates.matmul.pop_back();
  const std::string path = *offload::DefaultMachineRatesPath();
  ASSERT_TRUE(WriteMachine(rates, path).ok());
  EXPECT_THAT(source({}), HasSubstr("measured, in " + path));
  EXPECT_THAT(source({"run.precision=bf16"}),
              AllOf(HasSubstr("assumed, "),
                    HasSubstr(path + ": has no rate of products in bf16")));
  rates.device.name = "another";
  ASSERT_TRUE(WriteMachine(rates, path).ok());
  EXPECT_THAT(source({}), AllOf(HasSubstr("assumed, "),
                                HasSubstr(path + ": has the rates of ")));
  std::ofstream(path) << "{";
  EXPECT_THAT(source({}),
              AllOf(HasSubstr("assumed, "), HasSubstr(path + ":1:1: "),
                    HasSubstr("run delink bench --suite machine")));
}

// The bus, or the host's memory, is what a step waits for.
TEST_F(PlanOfOffload, UpdatesWhereItIsSooner) {
  const std::string offload = "device=\"900KiB\"";
  Keep(1e6, 1e12);
  const RunPlan slow_bus = Good({}, offload);
  EXPECT_EQ(slow_bus.stages[1].offload->found->place.host_updates, 1);
  EXPECT_THAT(ToText(slow_bus, false),
              AllOf(HasSubstr("bound by the bus to the "),
                    HasSubstr("rates: measured, in "),
                    HasSubstr("if the device updates")));
  Keep(1e12, 1e6);
  const RunPlan slow_memory = Good({}, offload);
  EXPECT_EQ(slow_memory.stages[1].offload->found->place.host_updates, 0);
  EXPECT_THAT(ToText(slow_memory, false), HasSubstr("if the host does"));
  const RunPlan told = Good({}, "update=\"host\"");
  EXPECT_THAT(ToText(told, false), HasSubstr("bound by the host's updates"));
  // Of what keys say only the update is open.
  const RunPlan open = Good({}, "state=\"host\",update=\"auto\"");
  EXPECT_THAT(ToText(open, false), HasSubstr("  auto: the device updates\n"));
}

// Muon's matrices, which tensor ranks update together, are the device's.
TEST_F(PlanOfOffload, UpdatesTogetherOnTheDevice) {
  Keep(1e6, 1e12);
  const Words muon = {"optimizer.kind=muon", "optimizer.adamw_lr=1e-3"};
  const auto update = [&](const Words& sets, int64_t ranks) {
    return Good(sets, "state=\"host\",update=\"auto\"", ranks)
        .stages[1]
        .offload->found->place.host_updates;
  };
  EXPECT_GT(update(muon, 1), 0);
  Words tensor = muon;
  tensor.emplace_back("stage.0.parallel.tensor=2");
  EXPECT_EQ(update(tensor, 2), 0);
  // On a GPU products have other bits than the host's.
  const auto host_may = [&](const Words& sets) {
    Words cuda = sets;
    cuda.emplace_back("run.device=cuda");
    return Good(cuda, "state=\"host\",update=\"auto\"")
        .stages[1]
        .offload->found->by_host.has_value();
  };
  EXPECT_TRUE(host_may({}));
  EXPECT_FALSE(host_may(muon));
}

TEST_F(PlanOfOffload, HasATable) {
  const RunPlan run = Good({}, "resident=0.5,update=\"host\"");
  const std::string text = ToText(run, false);
  EXPECT_THAT(text,
              AllOf(HasSubstr("rates: assumed, "), HasSubstr("on device"),
                    HasSubstr("embed/embedding "), Not(HasSubstr("auto:"))));
  const nlohmann::json json = nlohmann::json::parse(ToJson(run, false));
  EXPECT_FALSE(json["stages"][0].contains("offload"));
  const nlohmann::json& offload = json["stages"][1]["offload"];
  int hosts = 0;
  for (const nlohmann::json& slab : offload["slabs"]) {
    EXPECT_EQ(slab["update"] == "host", slab["host_bytes"] > 0);
    hosts += slab["weights"] == "host" ? 1 : 0;
  }
  EXPECT_GT(hosts, 2);
  EXPECT_EQ(offload["machine_host_bytes"], json["stages"][1]["bytes"]["host"]);
}

}  // namespace
}  // namespace delink::testing::offload_plan_test
