// Runs under ZeRO 0 to 3, often with another ZeRO stage after the switch of
// Pseudo-to-Real, against the same run under ZeRO 0 whose planes are all on the
// device: losses, norms and all tensors of the last checkpoint have the same
// bits. If each micro-batch's gradients are reduced, the other run has ZeRO 2,
// since sums are made in another order than under ZeRO 0. Half of the runs are
// stopped and go on under other ZeRO stages and with other homes.
// Configurations are drawn; of a failure the whole one is told, as a command
// line (of a model that odd_models.h has).
//
//   DELINK_ZERO_RUNS=600 DELINK_ZERO_SEED=2 zero_run_test
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/recipes/run/odd_models.h"
#include "tests/recipes/run/run_table.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::zero_run_test {
namespace {

constexpr Change kRun = Change::kRun, kNothing = Change::kNothing;
constexpr uint64_t kRows = 40, kFullRows = 120;
constexpr int64_t kSteps = 6;

// "tensor context pipeline data expert", of each stage.
const char* const kAlong[] = {"tensor", "context", "pipeline", "data",
                              "expert"};
const std::vector<Value> kLayouts = {
    {"1 1 1 1 1, 1 1 1 1 1"}, {"1 1 1 2 1, 1 1 1 2 1"},
    {"1 1 1 2 1, 2 1 1 1 1"}, {"1 1 2 1 1, 1 1 1 2 1"},
    {"1 1 1 3 1, 1 1 1 3 1"}, {"1 1 1 4 1, 1 1 1 4 1"},
    {"2 1 1 2 1, 2 1 1 2 1"}, {"1 1 2 2 1, 1 1 2 2 1"},
    {"1 1 1 4 1, 2 1 2 1 1"}, {"2 1 1 2 1, 1 1 1 4 1"},
    {"1 1 2 2 1, 1 1 1 4 1"}, {"1 2 1 2 1, 1 1 2 2 1"},
    {"2 1 1 3 1, 1 1 2 3 1"}, {"1 1 2 3 1, 1 1 2 3 1"},
    {"2 1 2 2 1, 2 1 2 2 1"}, {"1 1 2 4 1, 2 1 1 4 1"}};
const std::vector<Value> kExpertLayouts = {
    {"1 1 1 2 2, 1 1 1 2 2"}, {"1 1 1 4 2, 1 1 1 4 2"},
    {"1 1 1 4 2, 1 1 1 4 1"}, {"2 1 1 2 2, 1 1 1 4 2"},
    {"1 1 2 2 2, 1 1 2 2 2"}, {"2 1 1 2 1, 2 1 1 2 2"},
    {"1 1 1 6 2, 1 1 2 3 1"}, {"2 1 1 4 2, 1 1 2 4 2"}};

std::vector<Value> AllLayouts() {
  std::vector<Value> all = kLayouts;
  all.insert(all.end(), kExpertLayouts.begin(), kExpertLayouts.end());
  return all;
}

// Layouts without a pipeline.
std::vector<std::string> Flat() {
  std::vector<std::string> flat;
  for (const Value& value : AllLayouts()) {
    if (value.name[4] == '1' && value.name[15] == '1') {
      flat.push_back(value.name);
    }
  }
  return flat;
}

std::vector<std::string> WithoutExperts() {
  std::vector<std::string> names;
  for (const Value& value : kLayouts) names.push_back(value.name);
  return names;
}

// The ZeRO stages of both stages: all pairs in which one shards gradients.
std::vector<Value> ZeroPairs() {
  std::vector<Value> pairs;
  for (const char before : {'3', '2', '1', '0'}) {
    for (const char after : {'3', '2', '1', '0'}) {
      if (std::max(before, after) < '2') continue;
      pairs.push_back({std::string{before, ' ', after}});
    }
  }
  return pairs;
}

const std::vector<Axis> kAxes = {
    {"model", kRun, {{"odd"}, {"gpt"}, {"llama"}, {"moe"}}},
    {"tied",
     kRun,
     {{"false", "model.tied=false"}, {"true", "model.tied=true"}}},
    {"share",
     kRun,
     {{"none", "stage.0.share=none"},
      {"groups", "stage.0.share=groups:2"},
      {"all"}}},
    {"state",
     kRun,
     {{"scale"},
      {"calibrated",
       "stage.1.state=calibrated stage.1.calibration_batches=2"}}},
    {"optimizer", kRun, Optimizers()},
    // A rate at which a weight of the step before is seen at once.
    {"rate",
     kRun,
     {{"recipe's"}, {"large", "stage.0.lr_scale=10.0 stage.1.lr_scale=10.0"}}},
    {"clip", kRun, {{"norm", "optimizer.clip=0.5"}, {"recipe's"}}},
    {"dropout", kRun, {{"none"}, {"some", "model.dropout=0.1"}}},
    {"precision", kRun, Precisions()},
    {"order", kRun, {{"micro_batch"}, {"layer", "run.order=layer"}}},
    {"schedule",
     kRun,
     {{"1f1b"},
      Both("zero-bubble", "schedule=zero-bubble"),
      Both("interleaved", "schedule=interleaved")}},
    {"micro_batches", kRun, {{"1"}, {"2"}, {"4"}}},
    {"recompute",
     kRun,
     {{"norm+activation"},
      {"none", "run.recompute=none"},
      {"block", "run.recompute=block"}}},
    {"reduce", kRun, {{"step"}, Both("micro_batch", "reduce=micro_batch")}},
    {"layouts", kRun, AllLayouts(), {}, true},
    {"zero", kNothing, ZeroPairs()},
    {"offload",
     kNothing,
     {{"none"},
      {"state", "state=\"host\""},
      {"weights", "weights=\"host\""},
      {"gradients", "gradients=\"host\""},
      {"activations", "activations=\"host\""},
      {"all",
       "weights=\"host\",gradients=\"host\",state=\"host\","
       "activations=\"host\""},
      {"half", "weights=\"host\",state=\"host\",resident=0.5"},
      {"update", "update=\"host\""},
      {"attention", "rows=[{match=\"*/attn/*\",update=\"host\"}]"}}},
    {"threads", kNothing, {{"none"}, {"of lanes"}}},
    {"watched",
     kNothing,
     {{"no"}, {"yes", "run.probe_every=2 run.norms_every=2"}}},
    // Steps after the switch.
    {"stop", kNothing, {{"-1"}, {"0"}, {"1"}}}};

const std::vector<Rule> kRules = {
    {"model", {"odd", "gpt", "llama"}, "layouts", WithoutExperts()},
    {"order", {"layer"}, "layouts", Flat()},
    {"schedule", {"interleaved"}, "micro_batches", {"2", "4"}},
    {"reduce", {"micro_batch"}, "zero", {"3 3", "3 2", "2 3", "2 2"}},
    // Tensor ranks update a matrix together, which the host cannot.
    {"optimizer",
     {"adafactor", "muon"},
     "offload",
     {"none", "state", "weights", "gradients", "activations", "all", "half"}}};

// One whose few rows have each value (ZeroRows).
uint64_t Seed() { return FromEnvironment("DELINK_ZERO_SEED", 2); }

std::string RecipeOf(const Configuration& c) {
  const std::string& model = c.at("model");
  return model == "moe" || model == "llama" ? "tiny_" + model : "tiny";
}

int64_t Along(const Configuration& c, int stage, size_t axis) {
  return c.at("layouts")[static_cast<size_t>(11 * stage) + 2 * axis] - '0';
}

int RanksOf(const Configuration& c) {
  int64_t ranks = 1;
  for (size_t axis = 0; axis < 4; ++axis) ranks *= Along(c, 0, axis);
  return static_cast<int>(ranks);
}

std::vector<std::string> SetsOf(const Configuration& c) {
  std::vector<std::string> sets;
  for (const std::string& set : RunTable(kAxes, kRules, 0).Sets(c)) {
    if (set.find("\"host\"") == std::string::npos) {
      sets.push_back(set);
      continue;
    }
    for (const int stage : {0, 1}) {
      sets.push_back(absl::StrCat("stage.", stage, ".offload={", set, "}"));
    }
  }
  const int64_t micro_batches = c.at("micro_batches")[0] - '0';
  const int64_t together = std::lcm(Along(c, 0, 3), Along(c, 1, 3));
  for (const int stage : {0, 1}) {
    const std::string of = absl::StrCat("stage.", stage, ".");
    for (size_t axis = 0; axis < std::size(kAlong); ++axis) {
      sets.push_back(absl::StrCat(of, "parallel.", kAlong[axis], "=",
                                  Along(c, stage, axis)));
    }
    sets.push_back(
        absl::StrCat(of, "parallel.zero=", c.at("zero").substr(2 * stage, 1)));
    sets.push_back(
        absl::StrCat(of, "micro_batch=", together / Along(c, stage, 3)));
  }
  sets.push_back(absl::StrCat("data.batch=", together * micro_batches));
  return sets;
}

std::string CommandOf(const Configuration& c) {
  return absl::StrCat(TrainCommand(RanksOf(c), RecipeOf(c), SetsOf(c)),
                      c.at("model") == "odd" ? "  # odd model" : "");
}

// The run whose bits it has.
Configuration ReferenceOf(Configuration c) {
  c["zero"] = c.at("reduce") == "step" ? "0 0" : "2 2";
  c["offload"] = c["threads"] = "none";
  return c;
}

struct Row {
  Configuration configuration;
  uint64_t index = 0;
  friend std::ostream& operator<<(std::ostream& out, const Row& row) {
    return out << CommandOf(row.configuration);
  }
};

const std::vector<Row>& Drawn() {
  static const std::vector<Row> rows = [] {
    std::vector<Row> drawn;
    for (const Configuration& c :
         RunTable(kAxes, kRules, Seed())
             .Cover({}, RowCount("DELINK_ZERO_RUNS", kRows, kFullRows))) {
      drawn.push_back({.configuration = c, .index = drawn.size()});
    }
    return drawn;
  }();
  return rows;
}

TinyRuns& RunsOf(const std::string& recipe) {
  static std::map<std::string, TinyRuns> all;
  const auto [at, is_new] = all.try_emplace(recipe, recipe);
  if (!is_new) return at->second;
  at->second.sets = {"run.checkpoint_every=0",
                     "run.norms_every=0",
                     "model.layers=4",
                     "model.dim=20",
                     "model.ffn=38",
                     "data.seq=8",
                     "data.validation_batches=1",
                     absl::StrCat("schedule.steps=", kSteps),
                     absl::StrCat("stage.0.until={steps=", kSteps / 2, "}"),
                     absl::StrCat("run.validate_every=", kSteps / 2)};
  if (recipe != "tiny") at->second.sets.emplace_back("model.head_dim=6");
  if (recipe == "tiny_moe") at->second.sets.emplace_back("model.expert_ffn=6");
  return at->second;
}

class ZeroRunTest : public ::testing::TestWithParam<Row> {
 protected:
  ZeroRunTest()
      : row_(GetParam().configuration),
        index_(GetParam().index),
        runs_(RunsOf(RecipeOf(row_))) {}

  std::string Out(const std::string& name) const {
    return absl::StrCat(name, index_);
  }
  void Go(const Configuration& c, RunRequest request) {
    SCOPED_TRACE(CommandOf(c));
    request.sets = SetsOf(c);
    request.ranks = RanksOf(c);
    request.lane_threads = c.at("threads") == "of lanes";
    if (c.at("model") == "odd") request.models = OddModels;
    ASSERT_NO_FATAL_FAILURE(runs_.Go(request));
  }
  std::vector<nlohmann::json> Facts(const std::string& out) const {
    std::vector<nlohmann::json> facts =
        runs_.RowsOf(out, {"step", "loss", "grad_norm", "validation_loss",
                           "loss_before", "loss_after"});
    std::erase_if(facts, [](const nlohmann::json& row) {
      return !row.contains("loss") && !row.contains("loss_before");
    });
    return facts;
  }
  void ExpectSameBits(const std::string& out) {
    EXPECT_EQ(Facts(Out("reference")), Facts(out));
    EXPECT_EQ(FirstDifference(reference_, runs_.Load(out, kSteps)), "");
  }
  void GoesOnUnderAnother();

  const Configuration row_;
  const uint64_t index_;
  TinyRuns& runs_;
  Tensors reference_;
};
INSTANTIATE_TEST_SUITE_P(Table, ZeroRunTest, ::testing::ValuesIn(Drawn()));

void ZeroRunTest::GoesOnUnderAnother() {
  const Configuration then =
      RunTable(kAxes, kRules, Seed() + index_).Another(row_, {kNothing});
  const int64_t stop = kSteps / 2 + std::stoi(row_.at("stop"));
  ASSERT_NO_FATAL_FAILURE(
      Go(row_, {.out = Out("stopped"), .until_step = stop}));
  SCOPED_TRACE("stopped, then: " + CommandOf(then));
  ASSERT_NO_FATAL_FAILURE(Go(then, {.out = Out("stopped"), .resume = true}));
  ExpectSameBits(Out("stopped"));
}

TEST_P(ZeroRunTest, HasTheBitsOfTheRunWithout) {
  const Configuration reference = ReferenceOf(row_);
  SCOPED_TRACE("the reference: " + CommandOf(reference));
  ASSERT_NO_FATAL_FAILURE(Go(reference, {.out = Out("reference")}));
  ASSERT_EQ(runs_.Steps(Out("reference")).size(), kSteps);
  reference_ = runs_.Load(Out("reference"), kSteps);
  ASSERT_NO_FATAL_FAILURE(Go(row_, {.out = Out("run")}));
  ExpectSameBits(Out("run"));
  if (index_ % 2 == 0) {
    ASSERT_NO_FATAL_FAILURE(GoesOnUnderAnother());
  }
}

// Also elements that have no gradient, by decay.
TEST(ZeroRun, EveryElementMovesInTheFirstStep) {
  const TinyRuns& runs = RunsOf("tiny");
  RunRequest request{
      .ranks = 3,
      .sets = {"data.batch=3", "run.micro_batch=1", "model.tied=true",
               "stage.0.share=none", "stage.0.parallel.zero=3"},
      .until_step = 1,
      .models = OddModels};
  request.out = "moved";
  ASSERT_NO_FATAL_FAILURE(runs.Go(request));
  request.out = "still";
  request.sets.emplace_back("stage.0.lr_scale=1e-32");
  ASSERT_NO_FATAL_FAILURE(runs.Go(request));
  const Tensors moved = runs.Load("moved", 1);
  for (const auto& [name, before] : runs.Load("still", 1)) {
    if (!name.starts_with("/model/")) continue;
    const std::vector<float>& after = moved.at(name);
    for (size_t i = 0; i < after.size(); ++i) {
      EXPECT_NE(after[i], before[i]) << name << " " << i;
    }
  }
}

bool ShardsWeights(const Configuration& c, int stage) {
  return c.at("zero")[static_cast<size_t>(2 * stage)] == '3' &&
         Along(c, stage, 3) > 1;
}

TEST(ZeroRows, ShardWeightsWithEachValue) {
  std::set<std::string> wanted;
  for (const Axis& axis : kAxes) {
    for (const Value& value : axis.values) {
      if (axis.alone || axis.name == "zero") continue;
      wanted.insert(absl::StrCat(axis.name, " ", value.name));
    }
  }
  for (const Row& row : Drawn()) {
    const Configuration& c = row.configuration;
    if (!ShardsWeights(c, 0) && !ShardsWeights(c, 1)) continue;
    for (const auto& [axis, value] : c) {
      wanted.erase(absl::StrCat(axis, " ", value));
    }
  }
  EXPECT_EQ(absl::StrJoin(wanted, "; "), "") << "in no row";
}

}  // namespace
}  // namespace delink::testing::zero_run_test
