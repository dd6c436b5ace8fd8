// Runs that are given bytes of the device and of the host instead of homes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/format_bytes.h"
#include "offload/rates/machine_rates.h"
#include "recipes/run/pretrain.h"
#include "recipes/run/setup/setup.h"
#include "recipes/schema/machine_file.h"
#include "tests/recipes/run/tiny_run.h"
#include "tests/testing/cpu_rates.h"
#include "tests/testing/environment_variable.h"
#include "tests/testing/temp_dir.h"

namespace delink::testing::offload_budget_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kSteps = 8;

class OffloadBudget : public ::testing::Test {
 protected:
  OffloadBudget() {
    runs_.sets = {"model.layers=4",
                  "model.dim=32",
                  "data.seq=16",
                  "data.batch=4",
                  "run.micro_batch=1",
                  "run.checkpoint_every=0",
                  "data.validation_batches=1",
                  absl::StrCat("schedule.steps=", kSteps),
                  "stage.0.until={steps=4}",
                  "optimizer.clip=0.5"};
  }
  static std::vector<std::string> And(std::vector<std::string> sets,
                                      const std::string& offload,
                                      int stage = 1) {
    sets.push_back(absl::StrCat("stage.", stage, ".offload={", offload, "}"));
    return sets;
  }
  // Bytes of the second stage: "total", "host", ...
  nlohmann::json Bytes(const std::string& out) const {
    for (const nlohmann::json& row : runs_.Rows(out)) {
      if (row.contains("bytes_after")) return row["bytes_after"];
    }
    ADD_FAILURE() << out << " has no switch";
    return {};
  }
  // What is said of a run that cannot be, of which there is then no folder.
  std::string ErrorOf(RunRequest request) const {
    request.out = "none";
    const absl::Status status = runs_.Run(request);
    EXPECT_FALSE(status.ok());
    EXPECT_FALSE(std::filesystem::exists(runs_.Folder("none")));
    return std::string(status.message());
  }

  TinyRuns runs_;
};

// Whatever the machine does, and so whatever is found: who updates how much,
// which activations go to the host and which are made again, and how far ahead
// planes come.
TEST_F(OffloadBudget, IsTheResidentRunAtAnyRates) {
  const TempDir cache;
  const EnvironmentVariable folder("XDG_CACHE_HOME", cache.path());
  struct Layout {
    int ranks = 1;
    std::vector<std::string> sets;
  };
  const std::vector<Layout> layouts = {
      {},
      {.sets = {"run.order=layer"}},
      {.ranks = 2,
       .sets = {"stage.0.parallel.zero=1", "stage.1.parallel.zero=1"}},
      {.ranks = 2,
       .sets = {"stage.0.parallel.pipeline=2", "stage.1.parallel.pipeline=2"}},
      {.ranks = 2, .sets = {"stage.1.parallel.tensor=2"}}};
  for (size_t i = 0; i < layouts.size(); ++i) {
    runs_.Go({.ranks = layouts[i].ranks,
              .sets = layouts[i].sets,
              .out = absl::StrCat("all", i)});
  }
  struct Case {
    size_t layout;
    double flops, bus, memory;  // a second
    int percent;                // of all that is there
    std::string keys;           // beside the budget
  };
  const std::string ahead =
      ",weights=\"host\",gradients=\"host\",state=\"device\"";
  const Case cases[] = {{0, 1e9, 1e9, 1e9, 85, ""},
                        {0, 1e9, 1e8, 1e7, 68, ""},
                        {0, 1e9, 1e9, 1e9, 45, ""},
                        {0, 1e9, 1e6, 1e12, 80, ""},
                        {0, 1e8, 1e7, 1e7, 1000, ahead},
                        {1, 1e8, 1e8, 1e7, 68, ""},
                        {1, 1e9, 1e6, 1e12, 85, ""},
                        {1, 1e8, 1e6, 1e9, 1000, ",state=\"host\""},
                        {2, 1e9, 1e6, 1e6, 85, ""},
                        {2, 1e9, 1e7, 1e9, 80, ",update=\"device\""},
                        {2, 1e9, 1e7, 1e9, 1000, ahead},
                        {3, 1e9, 1e6, 1e9, 85, ""},
                        {3, 1e9, 1e9, 2e7, 80, ""},
                        {4, 1e9, 1e6, 1e6, 80, ""}};
  std::vector<AutoPlace> found;
  for (const Case& c : cases) {
    ASSERT_TRUE(WriteMachine(CpuRates(c.flops, c.bus, c.memory),
                             *offload::DefaultMachineRatesPath())
                    .ok());
    const Layout& layout = layouts[c.layout];
    const std::string all = absl::StrCat("all", c.layout);
    const std::string out = absl::StrCat("found", found.size());
    const int64_t device = Bytes(all)["total"].get<int64_t>() * c.percent / 100;
    AutoPlace place;
    runs_.Go({.ranks = layout.ranks,
              .sets = And(layout.sets, absl::StrCat("device=", device, c.keys)),
              .out = out,
              .instead = [&](RunSetup& run) {
                if (run.env().world->rank() == 0) place = run.env().homes[1];
                return Train(run, std::nullopt).status();
              }});
    found.push_back(place);
    SCOPED_TRACE(absl::StrCat(out, ": ", ToString(place)));
    EXPECT_LE(Bytes(out)["total"], device);
    runs_.ExpectSameBits(all, out, kSteps);
  }
  const auto any = [&](const std::function<bool(const AutoPlace&)>& is) {
    return std::ranges::any_of(found, is);
  };
  EXPECT_TRUE(any([](const auto& of) { return of.host_updates == 1; }));
  EXPECT_TRUE(any([](const auto& of) { return of.host_updates == 0; }));
  EXPECT_TRUE(any([](const auto& of) {
    return of.host_updates > 0 && of.host_updates < 1;
  }));
  EXPECT_TRUE(
      any([](const auto& of) { return of.activations * of.recompute > 0; }));
  EXPECT_TRUE(any(
      [](const auto& of) { return of.activations * (1 - of.recompute) > 0; }));
  EXPECT_TRUE(any([](const auto& of) { return of.ahead > 1; }));
  EXPECT_TRUE(any([](const auto& of) { return of.weights > 0; }));
}

// Validations, probes, calibration and checkpoints take nothing of it besides:
// the device would refuse, which has no more than what the account says.
TEST_F(OffloadBudget, WhatTheAccountSaysIsEnoughForAllThatARunDoes) {
  const std::vector<std::string> sets = {
      "run.checkpoint_every=2", "run.validate_every=2", "run.probe_every=2",
      "run.norms_every=1", "stage.1.state=calibrated"};
  runs_.Go({.sets = sets, .out = "all"});
  const int64_t all = Bytes("all")["total"];
  runs_.Go({.sets = And(sets, absl::StrCat("device=", all * 85 / 100)),
            .out = "some"});
  const int64_t device = Bytes("some")["total"];
  const std::vector<std::string> held =
      And(sets, absl::StrCat("device=", device));
  runs_.Go({.sets = held, .out = "held", .until_step = 6});
  runs_.Go({.sets = held, .out = "held", .resume = true});
  EXPECT_EQ(Bytes("held")["total"], device);
  EXPECT_EQ(
      FirstDifference(runs_.Load("all", kSteps), runs_.Load("held", kSteps)),
      "");
}

// It is the stage before that has too much, so nothing is said of
// micro-batches.
TEST_F(OffloadBudget, WhatTheSwitchCannotHoldIsSaid) {
  const std::vector<std::string> sets = {"stage.0.share=none", "data.seq=4",
                                         "data.batch=2"};
  runs_.Go({.sets = sets, .out = "all"});
  const nlohmann::json bytes = Bytes("all");
  const int64_t planes = bytes["weights"].get<int64_t>() +
                         bytes["gradients"].get<int64_t>() +
                         bytes["state"].get<int64_t>();
  const std::vector<std::string> budget =
      And(sets, absl::StrCat("device=", planes * 9 / 10));
  EXPECT_THAT(ErrorOf({.sets = budget}),
              AllOf(HasSubstr("stage[1].offload.device: "),
                    HasSubstr(", but the switch takes "),
                    HasSubstr("stage pseudo has " + FormatBytes(planes)),
                    HasSubstr("(stage[0].offload: a budget, or state = "),
                    Not(HasSubstr("micro_batch"))));
  runs_.Go({.sets = And(budget, "state=\"host\"", 0), .out = "mended"});

  const std::string home = "weights=\"host\",gradients=\"host\",state=\"host\"";
  const std::vector<std::string> there = And(sets, home, 0);
  runs_.Go({.sets = And(there, home), .out = "home"});
  const int64_t host = Bytes("home")["host"].get<int64_t>();
  EXPECT_THAT(
      ErrorOf({.sets = And(there, absl::StrCat(home, ",host=", host))}),
      AllOf(HasSubstr("stage[1].offload.host: "),
            HasSubstr(" of a machine, but the switch takes "),
            HasSubstr("keep more of that on the device (stage[0].offload")));
}

// And the host, also where the stage before has nothing on the device.
TEST_F(OffloadBudget, TheHostHoldsTheSwitchToo) {
  const std::string home = "weights=\"host\",gradients=\"host\",state=\"host\"";
  const std::vector<std::string> sets = And({"stage.0.share=none"}, home, 0);
  runs_.Go({.sets = And(sets, home), .out = "home"});
  const int64_t both = 2 * Bytes("home")["host"].get<int64_t>();
  const auto within = [&](int64_t host) {
    return And(sets, absl::StrCat(home, ",host=", host));
  };
  EXPECT_THAT(ErrorOf({.sets = within(both - 1)}),
              HasSubstr("stage[1].offload.host: "));
  runs_.Go({.sets = within(both), .out = "within"});
}

TEST_F(OffloadBudget, WhatCannotBeHeldIsSaid) {
  EXPECT_THAT(
      ErrorOf({.sets = And({}, "device=\"20KiB\"")}),
      AllOf(HasSubstr("stage[1].offload.device: 20.0 KiB, but even with "
                      "everything host-resident that can be, a rank takes "),
            HasSubstr(" too much; raise it or use more ranks")));
  EXPECT_THAT(
      ErrorOf({.sets = And({"run.recompute=none"}, "device=\"20KiB\"")}),
      HasSubstr("recompute = \"norm+activation\""));
  EXPECT_THAT(ErrorOf({.sets = And({}, "device=\"20KiB\",state=\"device\"")}),
              HasSubstr("leave offload.weights, gradients, state and "
                        "activations to \"auto\""));
  EXPECT_THAT(
      ErrorOf({.sets = And({}, "host=\"1KiB\",state=\"host\"")}),
      AllOf(HasSubstr("stage[1].offload.host: 1.0 KiB of a machine, but "),
            HasSubstr(" must be host-resident, "),
            HasSubstr("keep more on the device")));
}

// A host's budget is of all of its ranks.
TEST_F(OffloadBudget, RanksOfAMachineShareItsHost) {
  const std::vector<std::string> home = And({}, "state=\"host\"");
  runs_.Go({.ranks = 2, .sets = home, .out = "two"});
  const int64_t one = Bytes("two")["host"];
  const std::vector<std::string> budget =
      And({}, absl::StrCat("state=\"host\",host=", one));
  EXPECT_THAT(ErrorOf({.ranks = 2, .sets = budget}),
              HasSubstr("stage[1].offload.host"));
  runs_.Go({.ranks = 2, .sets = budget, .out = "apart", .ranks_per_node = 1});
}

TEST_F(OffloadBudget, MoreThanTheMachineHasIsSaid) {
  EXPECT_THAT(ErrorOf({.sets = And({}, "host=\"900000TiB\"")}),
              AllOf(HasSubstr("stage[1].offload.host: 900000.0 TiB, but this "
                              "machine has "),
                    HasSubstr(" of memory")));
  EXPECT_THAT(ErrorOf({.sets = And({}, "device=\"900000TiB\"")}),
              HasSubstr("stage[1].offload.device: 900000.0 TiB, but this "
                        "machine has "));
  // Nobody has said how much of it there may be.
  EXPECT_THAT(ErrorOf({.sets = And({"model.dim=32768", "model.layers=64"},
                                   "weights=\"host\",state=\"host\"")}),
              AllOf(HasSubstr("out of host memory: stage real needs "),
                    HasSubstr(" for all ranks of this machine, which has ")));
}

// Budgets are no part of a checkpoint.
TEST_F(OffloadBudget, GoesOnWithAnother) {
  runs_.Go({.out = "all"});
  const int64_t total = Bytes("all")["total"];
  const auto sets = [&](int percent) {
    return And({}, absl::StrCat("device=", total * percent / 100));
  };
  runs_.Go({.sets = sets(95), .out = "some", .until_step = 6});
  runs_.Go({.sets = sets(85), .out = "some", .resume = true});
  EXPECT_EQ(
      FirstDifference(runs_.Load("all", kSteps), runs_.Load("some", kSteps)),
      "");
}

}  // namespace
}  // namespace delink::testing::offload_budget_test
