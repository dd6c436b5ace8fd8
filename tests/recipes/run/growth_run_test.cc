// Runs of stages that visit more blocks from one to the next.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "recipes/run/position/saved_run.h"
#include "recipes/saved/offline_delink.h"
#include "tests/recipes/run/hybrid.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::growth_run_test {
namespace {

using ::testing::HasSubstr;
using Words = std::vector<std::string>;

constexpr int64_t kSteps = 20, kSwitch = 10;  // recipes/tiny*.toml

class GrowthRunTest : public ::testing::TestWithParam<const char*> {
 protected:
  GrowthRunTest() : runs_(GetParam()) { runs_.sets = {"stage.0.share=none"}; }

  Switch SwitchOf(const std::string& out) {
    const std::vector<Switch> switches = runs_.Switches(out);
    EXPECT_EQ(switches.size(), 1);
    EXPECT_EQ(switches.at(0).step, kSwitch);
    return switches.at(0);
  }

  TinyRuns runs_;
};
INSTANTIATE_TEST_SUITE_P(Recipes, GrowthRunTest,
                         ::testing::ValuesIn(kDenseRecipes));

TEST_P(GrowthRunTest, AllLayersAreTheRunThatSaysNothing) {
  runs_.sets = {};
  runs_.Go({.out = "unsaid"});
  runs_.Go({.sets = {"stage.0.depth=4", "stage.1.depth=4"}, .out = "said"});
  runs_.ExpectSameBits("unsaid", "said", kSteps);
}

TEST_P(GrowthRunTest, TheSwitchSaysWhatATokenTakes) {
  runs_.Go(
      {.sets = {"stage.0.depth=1"}, .out = "run", .until_step = kSwitch + 1});
  int switches = 0;
  for (const nlohmann::json& row : runs_.Rows("run")) {
    if (row.value("event", "") != "delink") continue;
    ++switches;
    EXPECT_EQ(row["depth_before"], 1);
    EXPECT_EQ(row["depth"], 4);
    EXPECT_LT(row["flops_per_token_before"].get<double>(),
              0.6 * row["flops_per_token"].get<double>());
    EXPECT_LT(row["virtual_parameters_before"], row["virtual_parameters"]);
  }
  EXPECT_EQ(switches, 1);
}

// What all steps of a run took, as its last row says.
double FlopsOf(const TinyRuns& runs, const std::string& out) {
  double flops = 0;
  for (const nlohmann::json& row : runs.Rows(out)) {
    if (row.contains("loss")) flops = row["flops"];
  }
  return flops;
}

TEST_P(GrowthRunTest, FlopsAreThoseOfTheStepsThatWereDone) {
  const Words sets = {"stage.0.depth=1"};
  runs_.Go({.sets = sets, .out = "straight"});
  double flops_per_token = 0, flops = 0;
  int64_t tokens = 0;
  for (const nlohmann::json& row : runs_.Rows("straight")) {
    if (row.contains("flops_per_token")) {
      flops_per_token = row["flops_per_token"];
    }
    if (!row.contains("tokens")) continue;
    const auto now = row["tokens"].get<int64_t>();
    flops += static_cast<double>(now - tokens) * flops_per_token;
    tokens = now;
    EXPECT_EQ(row["flops"].get<double>(), flops) << row;
  }
  EXPECT_GT(flops, 0);
  EXPECT_EQ(FlopsOf(runs_, "straight"), flops);
  // In a folder that knows nothing of what was before.
  const auto resumed = [&](const std::string& out, const std::string& from) {
    runs_.Go({.sets = sets, .out = out, .resume = true, .resume_from = from});
    const auto saved = SavedRun::Read(runs_.Checkpoint(out, kSteps));
    EXPECT_TRUE(saved.ok()) << saved.status();
    EXPECT_EQ(saved->flops, FlopsOf(runs_, out));
    return FlopsOf(runs_, out);
  };
  for (const int64_t stop : {kSwitch - 3, kSwitch, kSwitch + 3}) {
    const std::string out = absl::StrCat("stopped-", stop);
    runs_.Go({.sets = sets, .out = out, .until_step = stop});
    EXPECT_EQ(resumed(out + "-on", runs_.Checkpoint(out, stop)), flops);
  }
  const auto grown =
      OfflineDelink({.checkpoint = runs_.Checkpoint("straight", kSwitch),
                     .out = runs_.Folder("grown")},
                    BuiltInModels());
  ASSERT_TRUE(grown.ok()) << grown.status();
  EXPECT_EQ(resumed("hand", grown->to), flops);
}

// By weights that nothing has updated since the switch.
TEST_P(GrowthRunTest, RandomBlocksAreThoseOfARunFromScratch) {
  const Words held = {"stage.1.lr_scale=0.0"};
  runs_.Go(
      {.sets = {"stage.0.lr_scale=0.0"}, .out = "scratch", .until_step = 1});
  const Tensors scratch = runs_.Load("scratch", 1);
  for (const int ranks : {1, 2}) {
    const std::string out = absl::StrCat("grown", ranks);
    Words sets = {"stage.0.depth=2", "stage.0.visit=even",
                  "stage.1.grow=random",
                  absl::StrCat("stage.1.parallel.zero=", ranks - 1)};
    sets.insert(sets.end(), held.begin(), held.end());
    runs_.Go({.ranks = ranks, .sets = sets, .out = out});
    int fresh = 0;
    for (const auto& [name, values] : runs_.Load(out, kSteps)) {
      if (name.rfind("/model/", 0) != 0) continue;
      const bool block = name.rfind("/model/blocks/1/", 0) == 0 ||
                         name.rfind("/model/blocks/3/", 0) == 0;
      if (block) {
        EXPECT_EQ(values, scratch.at(name)) << name;
      }
      if (name.ends_with("qkv/weight")) {
        EXPECT_EQ(values == scratch.at(name), block) << name;
        ++fresh;
      }
    }
    EXPECT_EQ(fresh, 4);
  }
}

// One layer that is run once, and then all: stacking.
TEST_P(GrowthRunTest, OneSharedLayerIsDelinked) {
  runs_.Go(
      {.sets = {"stage.0.share=all", "stage.0.depth=1", "stage.1.lr_scale=0.0"},
       .out = "run"});
  const Tensors before = runs_.Load("run", kSwitch);
  const Tensors after = runs_.Load("run", kSteps);
  int copies = 0;
  for (const auto& [name, values] : before) {
    const size_t at = name.find("blocks/0/");
    if (at == name.npos || name.rfind("/model/", 0) != 0) continue;
    for (const char block : {'0', '1', '2', '3'}) {
      std::string copy = name;
      copy[at + 7] = block;
      EXPECT_EQ(after.at(copy), values) << copy;
      ++copies;
    }
  }
  EXPECT_GE(copies, 4 * 6);
}

TEST_P(GrowthRunTest, StoppedAndResumedEqualsTheStraightRun) {
  struct Case {
    int ranks;
    Words sets;
    std::vector<int64_t> stops;
  };
  const Case cases[] = {
      {1,
       {"stage.0.share=cycle:2", "stage.0.depth=3", "stage.1.state=reset"},
       {10}},
      {2,
       {"stage.0.depth=2", "stage.0.visit=even", "stage.1.grow=random",
        "stage.0.parallel.zero=1", "run.precision=bf16"},
       {10, 13}},
      {1, {"stage.0.depth=2", "stage.1.grow=cycle"}, {10}}};
  int number = 0;
  for (const Case& c : cases) {
    const std::string straight = absl::StrCat("straight", number++);
    runs_.Go({.ranks = c.ranks, .sets = c.sets, .out = straight});
    for (const int64_t stop : c.stops) {
      const std::string out = absl::StrCat(straight, "-", stop);
      SCOPED_TRACE(out);
      runs_.Go(
          {.ranks = c.ranks, .sets = c.sets, .out = out, .until_step = stop});
      runs_.Go({.ranks = c.ranks, .sets = c.sets, .out = out, .resume = true});
      runs_.ExpectSameBits(straight, out, kSteps);
      EXPECT_EQ(SwitchOf(out).loss_after, SwitchOf(straight).loss_after);
    }
  }
}

// What new blocks do is seen where they do something; that those of `zero` do
// nothing is in whole_run_test.cc.
TEST_P(GrowthRunTest, OtherBlocksChangeTheLoss) {
  runs_.Go({.sets = {"stage.0.depth=2", "stage.1.grow=random"}, .out = "run"});
  EXPECT_NE(SwitchOf("run").loss_before, SwitchOf("run").loss_after);
}

TEST(GrowthTest, BlocksOfAnotherKindAreNotCopied) {
  const TinyRuns runs;
  const auto refused = [&](const char* grow) {
    return std::string(
        runs.Run({.sets = {"stage.0.share=none", "stage.0.depth=3", grow},
                  .out = "run",
                  .until_step = 11,
                  .models = Hybrids})
            .message());
  };
  EXPECT_THAT(refused("stage.1.grow=copy"),
              HasSubstr("--set stage.1.grow=copy: stage[1].grow: block 3 would "
                        "be a copy of block 2, which declares other parameters "
                        "in mlp; let it begin as \"random\" or \"zero\""));
  EXPECT_EQ(refused("stage.1.grow=zero"), "");
}

// As it is for a stage of its depth, grown by hand for a deeper one.
TEST_P(GrowthRunTest, RunsBeginWithShallowOnes) {
  runs_.Go({.sets = {"stage.0.depth=2"}, .out = "old", .until_step = 10});
  const std::string old = runs_.Checkpoint("old", 10);
  runs_.Go({.sets = {"stage.0.depth=2", "stage.0.lr_scale=0.0"},
            .out = "same",
            .until_step = 1,
            .init = old});
  const Tensors before = runs_.Load("old", 10);
  for (const auto& [name, values] : runs_.Load("same", 1)) {
    if (name.rfind("/model/", 0) == 0) {
      EXPECT_EQ(values, before.at(name)) << name;
    }
  }
  const Words deep = {"stage.0.lr_scale=0.0"};
  const absl::Status status =
      runs_.Run({.sets = deep, .out = "deep", .until_step = 1, .init = old});
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("grow the checkpoint with delink delink --depth N"));
  const auto grown = OfflineDelink({.checkpoint = old,
                                    .out = runs_.Folder("grown"),
                                    .depth = 4,
                                    .grow = GrowPolicy::kCycle},
                                   BuiltInModels());
  ASSERT_TRUE(grown.ok()) << grown.status();
  runs_.Go({.sets = deep, .out = "deep", .until_step = 1, .init = grown->to});
  const Tensors after = runs_.Load("deep", 1);
  const auto weight = [](int block) {
    return absl::StrCat("/model/blocks/", block, "/attn/qkv/weight");
  };
  for (int block = 0; block < 4; ++block) {
    EXPECT_EQ(after.at(weight(block)), before.at(weight(block % 2))) << block;
  }
}

// Another depth than the checkpoint's is not the run that it was.
TEST_P(GrowthRunTest, TheDepthOfTheStageMayNotChange) {
  runs_.Go({.sets = {"stage.0.depth=2"}, .out = "run", .until_step = 5});
  const auto refused = [&](const Words& sets) {
    return std::string(
        runs_.Run({.sets = sets, .out = "run", .resume = true}).message());
  };
  EXPECT_THAT(refused({"stage.0.depth=3"}),
              HasSubstr("stage[0].depth: is 3, but the run to resume has 2"));
  EXPECT_THAT(refused({}),
              HasSubstr("has blocks 0,1, but the stage visits 0,1,2,3"));
}

}  // namespace
}  // namespace delink::testing::growth_run_test
