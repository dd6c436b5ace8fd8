// Switches of models with experts, with every policy for every part: the loss
// is the same on both sides, bit for bit.
//
//   DELINK_EXPERT_SWITCHES=600 DELINK_EXPERT_SWITCHES_SEED=2 routing_test
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/recipes/run/run_table.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::expert_switches_test {
namespace {

constexpr Change kRun = Change::kRun;
constexpr uint64_t kRows = 20, kFullRows = 60;

// In the first two of three stages; in the last, nothing is shared.
struct Policies {
  const char *first, *second;
};
constexpr Policies kPolicies[] = {
    {"all", "all"},         {"all", "groups:4"},  {"all", "cycle:3"},
    {"all", "none"},        {"groups:2", "none"}, {"groups:2", "groups:4"},
    {"cycle:2", "cycle:4"}, {"cycle:3", "none"},  {"none", "none"}};
const char* const kParts[] = {"attention", "norm",    "mlp",
                              "router",    "experts", "shared_experts"};

std::string NameOf(const Policies& policies) {
  return absl::StrCat(policies.first, " ", policies.second);
}

const std::vector<Axis> kAxes = [] {
  std::vector<Axis> axes = {
      {"model", kRun, {{"moe"}, {"m6"}}},
      {"score",
       kRun,
       {{"sigmoid", "model.router.score=sigmoid"},
        {"softmax", "model.router.score=softmax"}}},
      // tiny_moe has a slow one.
      {"bias", kRun, {{"recipe"}, {"fast", "model.router.bias_rate=0.05"}}},
      {"aux_over",
       kRun,
       {{"sequence", "model.router.aux_over=sequence"},
        {"micro_batch", "model.router.aux_over=micro_batch"},
        {"batch", "model.router.aux_over=batch"}}},
      {"shared",
       kRun,
       {{"0", "model.shared_experts=0"}, {"2", "model.shared_experts=2"}}},
      {"dense",
       kRun,
       {{"0", "model.dense_layers=0"}, {"1", "model.dense_layers=1"}}},
      {"every", kRun, {{"1"}, {"2", "model.moe_every=2"}}},
      {"precision",
       kRun,
       {{"fp32"},
        {"bf16", "run.precision=bf16"},
        {"none", "run.precision=bf16 run.master=none"}}},
      {"ranks", kRun, {{"1"}, {"2"}}}};
  for (const char* const state : {"state1", "state2"}) {
    axes.push_back(
        {state, kRun, {{"scale"}, {"reset"}, {"copy"}, {"calibrated"}}});
  }
  for (const char* const part : kParts) {
    Axis& axis = axes.emplace_back(Axis{.name = part, .change = kRun});
    for (const Policies& of : kPolicies) axis.values.push_back({NameOf(of)});
  }
  return axes;
}();
const std::vector<Rule> kRules;

bool HasPart(const Configuration& c, const std::string& part) {
  if (part == "mlp") return c.at("dense") == "1" || c.at("every") == "2";
  return part != "shared_experts" || c.at("shared") != "0";
}

std::string Stages(const Configuration& c) {
  std::string first, second;
  for (const char* const part : kParts) {
    if (!HasPart(c, part)) continue;
    for (const Policies& of : kPolicies) {
      if (NameOf(of) != c.at(part)) continue;
      absl::StrAppend(&first, part, "=\"", of.first, "\",");
      absl::StrAppend(&second, part, "=\"", of.second, "\",");
    }
  }
  for (std::string* const share : {&first, &second}) share->pop_back();
  const std::string zero = c.at("ranks") == "1" ? "" : ",parallel={zero=1}";
  return absl::StrCat("stage=[{name=\"a\",until={steps=2},share={", first, "}",
                      zero, "},{name=\"b\",until={steps=4},share={", second,
                      "},state=\"", c.at("state1"),
                      "\"},{name=\"c\",share=\"none\",state=\"", c.at("state2"),
                      "\"}]");
}

TEST(ExpertSwitches, KeepTheLossToTheBit) {
  const TinyRuns moe("tiny_moe"), m6("tiny_m6");
  std::vector<std::string> sizes = {"model.layers=8",
                                    "model.dim=16",
                                    "model.heads=2",
                                    "model.expert_ffn=12",
                                    "model.router.aux_loss=0.1",
                                    "data.seq=12",
                                    "data.batch=4",
                                    "run.micro_batch=1",
                                    "schedule.warmup=0",
                                    "schedule.steps=5",
                                    "run.validate_every=0",
                                    "optimizer.lr=1e-2",
                                    "run.checkpoint_every=0"};
  RunTable table(kAxes, kRules,
                 FromEnvironment("DELINK_EXPERT_SWITCHES_SEED", 1));
  for (const Configuration& c :
       table.Cover({}, RowCount("DELINK_EXPERT_SWITCHES", kRows, kFullRows))) {
    const TinyRuns& runs = c.at("model") == "moe" ? moe : m6;
    const int ranks = c.at("ranks")[0] - '0';
    std::vector<std::string> sets = sizes;
    for (const std::string& set : table.Sets(c)) sets.push_back(set);
    sets.push_back(Stages(c));
    SCOPED_TRACE(
        TrainCommand(ranks, absl::StrCat("tiny_", c.at("model")), sets));
    ASSERT_NO_FATAL_FAILURE(runs.Go(
        {.ranks = ranks, .sets = sets, .out = "run", .overwrite = true}));
    const std::vector<Switch> switches = runs.Switches("run");
    ASSERT_EQ(switches.size(), 2u);
    for (const Switch& at : switches) {
      EXPECT_GT(at.loss_before, 1);
      EXPECT_EQ(at.loss_before, at.loss_after) << at.step;
    }
  }
}

}  // namespace
}  // namespace delink::testing::expert_switches_test
