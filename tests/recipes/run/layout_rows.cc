#include "tests/recipes/run/layout_rows.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/testing/full_test.h"

namespace delink::testing {
namespace {

constexpr Change kRun = Change::kRun, kRounding = Change::kRounding;

// The ranks of a stage: "tensor context pipeline data". Of 2, 4 and 8 ranks.
const std::vector<std::vector<std::string>> kLayouts = {
    {"2 1 1 1", "1 2 1 1", "1 1 2 1", "1 1 1 2"},
    {"4 1 1 1", "2 2 1 1", "1 1 1 4", "2 1 2 1", "2 1 1 2", "1 2 2 1",
     "1 2 1 2", "1 1 2 2", "1 1 4 1"},
    {"2 2 2 1", "2 1 2 2", "4 1 2 1", "4 1 1 2", "2 1 4 1", "2 2 1 2",
     "4 2 1 1", "1 2 2 2", "1 2 4 1"}};
const char* const kOne = "1 1 1 1, 1 1 1 1";

size_t Digit(int stage, Direction direction) {
  return 9 * static_cast<size_t>(stage) + 2 * static_cast<size_t>(direction);
}

int Ranks(const std::string& layouts, int stage, Direction direction) {
  return layouts[Digit(stage, direction)] - '0';
}

// Whether one of the stages has more than one of them.
bool Any(const std::string& layouts, Direction direction) {
  return Ranks(layouts, 0, direction) > 1 || Ranks(layouts, 1, direction) > 1;
}

// Of each number of ranks every layout with itself and two others after it.
std::vector<Value> LayoutPairs() {
  std::vector<Value> pairs;
  for (const std::vector<std::string>& some : kLayouts) {
    for (size_t i = 0; i < some.size(); ++i) {
      for (const size_t further : {0, 1, 3}) {
        pairs.push_back(
            {absl::StrCat(some[i], ", ", some[(i + further) % some.size()])});
      }
    }
  }
  return pairs;
}

// Where few rows are drawn, every layout with one of these in turn.
std::vector<Value> DrawnLayoutPairs() {
  const std::vector<Value> all = LayoutPairs();
  if (IsFullTest() || std::getenv("DELINK_LAYOUTS") != nullptr) return all;
  std::vector<Value> pairs;
  for (size_t i = 0; i < all.size(); i += 3) {
    pairs.push_back(all[i + i / 3 % 3]);
  }
  return pairs;
}

std::vector<std::string> PairsWith(Direction direction) {
  std::vector<std::string> names;
  for (const Value& pair : LayoutPairs()) {
    if (Any(pair.name, direction)) names.push_back(pair.name);
  }
  return names;
}

// The words of `layouts` are SetsOf's.
const std::vector<Axis> kAxes = {
    {"model",
     kRun,
     {{"gpt", ""},
      {"gpt grouped", "model.kv_heads=2"},
      {"llama", ""},
      {"llama one", "model.kv_heads=1 model.qkv_bias=false"},
      {"moe"},
      {"m6", "model.capacity=0"}}},
    {"blocks", kRun, {{"4"}, {"6", "model.layers=6"}}},
    {"tied",
     kRun,
     {{"false", "model.tied=false"}, {"true", "model.tied=true"}}},
    {"share",
     kRun,
     {{"none", "stage.0.share=none"},
      {"groups", "stage.0.share=groups:2"},
      {"all"}}},
    {"stages",
     kRun,
     {{"whole"},
      {"calibrated", "stage.1.state=calibrated stage.1.calibration_batches=2"},
      {"own batch", "stage.0.batch=16"}}},
    {"optimizer",
     kRun,
     {{"adamw"},
      {"sgd", "optimizer.kind=sgd optimizer.lr=0.02"},
      {"lion", "optimizer.kind=lion optimizer.lr=3e-4"},
      {"adafactor",
       "optimizer.kind=adafactor optimizer.relative_step=false "
       "optimizer.lr=1e-3 optimizer.eps=1e-7"},
      {"muon",
       "optimizer.kind=muon optimizer.lr=1e-2 optimizer.adamw_lr=1e-3"}}},
    {"dropout", kRun, {{"none"}, {"some", "model.dropout=0.1"}}},
    {"documents", kRun, {{"packed"}, {"masked", "data.documents=masked"}}},
    {"vocab", kRun, {{"257"}, {"259", "model.vocab=259"}}},
    {"layouts", kRounding, DrawnLayoutPairs(), {}, true},
    {"sequence",
     kRounding,
     {{"true"},
      Both("false", "sequence=false"),
      {"after",
       "stage.0.parallel.sequence=false stage.1.parallel.sequence=true"}}},
    {"schedule",
     kRounding,
     {{"1f1b"},
      Both("zero-bubble", "schedule=zero-bubble"),
      Both("interleaved", "schedule=interleaved")}},
    {"zero",
     kRounding,
     {{"0"},
      Both("2", "zero=2"),
      Both("3", "zero=3"),
      {"2 in parts",
       "stage.0.parallel.zero=2 stage.0.parallel.reduce=micro_batch "
       "stage.1.parallel.zero=2 stage.1.parallel.reduce=micro_batch"},
      {"after", "stage.0.parallel.zero=1 stage.1.parallel.zero=3"}}},
    {"recompute",
     kRounding,
     {{"norm+activation"},
      {"none", "run.recompute=none"},
      {"block", "run.recompute=block"}}},
    // SetsOf says how many they are in each stage.
    {"expert", kRounding, {{"1"}, {"2"}, {"most"}}},
    {"dispatch",
     kRounding,
     {{"gather", "stage.0.parallel.dispatch=gather"},
      {"all-to-all", "stage.0.parallel.dispatch=all-to-all"},
      // Of which ranks then take more.
      {"little room",
       "stage.0.parallel.dispatch=all-to-all "
       "stage.0.parallel.expert_room=0.3 "
       "stage.1.parallel.expert_overlap=true"}}},
};

// What says nothing without ranks along an axis is drawn with some; two chunks
// on each of four ranks want eight layers.
const std::vector<Rule> kRules = {
    {"schedule",
     {"zero-bubble", "interleaved"},
     "layouts",
     PairsWith(Direction::kPipeline)},
    {"schedule", {"interleaved"}, "blocks", {"6"}},
    {"sequence", {"false", "after"}, "layouts", PairsWith(Direction::kTensor)},
    {"zero",
     {"2", "2 in parts", "after"},
     "layouts",
     PairsWith(Direction::kData)},
    {"model", {"moe", "m6"}, "sequence", {"true"}},
    {"expert", {"2", "most"}, "model", {"moe", "m6"}},
    {"expert", {"2", "most"}, "sequence", {"true"}},
    {"dispatch", {"all-to-all", "little room"}, "model", {"moe", "m6"}},
    {"dispatch", {"all-to-all", "little room"}, "sequence", {"true"}},
    {"dispatch", {"all-to-all", "little room"}, "expert", {"2", "most"}},
};

const std::vector<Configuration> kFirst = {
    {{"layouts", "1 1 1 4, 2 1 2 1"},
     {"stages", "calibrated"},
     {"share", "all"},
     {"model", "llama one"},
     {"optimizer", "adamw"}},
    {{"layouts", "1 1 1 4, 2 1 2 1"},
     {"stages", "calibrated"},
     {"share", "groups"},
     {"model", "gpt"},
     {"optimizer", "muon"},
     {"schedule", "interleaved"}},
    {{"layouts", "2 1 4 1, 2 1 4 1"},
     {"schedule", "interleaved"},
     {"share", "none"},
     {"tied", "false"}},
    {{"layouts", "2 1 2 2, 2 1 2 2"},
     {"schedule", "zero-bubble"},
     {"share", "none"},
     {"tied", "false"}},
    {{"layouts", "2 2 2 1, 2 2 2 1"},
     {"schedule", "interleaved"},
     {"share", "none"},
     {"tied", "false"},
     {"model", "llama"}},
    {{"layouts", "4 1 2 1, 4 1 2 1"},
     {"schedule", "zero-bubble"},
     {"model", "llama"}},
    {{"layouts", "2 2 1 2, 2 2 1 2"},
     {"model", "moe"},
     {"expert", "most"},
     {"dispatch", "little room"}},
};

}  // namespace

std::ostream& operator<<(std::ostream& out, const LayoutRow& row) {
  return out << CommandOf(row.configuration);
}

const std::vector<Axis>& LayoutAxes() { return kAxes; }

std::vector<LayoutRow> LayoutRows(uint64_t count, uint64_t seed) {
  std::vector<LayoutRow> rows;
  for (const Configuration& c :
       RunTable(kAxes, kRules, seed).Cover(kFirst, count)) {
    rows.push_back({.configuration = c, .index = rows.size()});
  }
  return rows;
}

int RanksAlong(const Configuration& c, int stage, Direction direction) {
  return Ranks(c.at("layouts"), stage, direction);
}

int RanksOf(const Configuration& c) {
  int ranks = 1;
  for (const Direction direction : {Direction::kTensor, Direction::kContext,
                                    Direction::kPipeline, Direction::kData}) {
    ranks *= RanksAlong(c, 0, direction);
  }
  return ranks;
}

int ExpertsOf(const Configuration& c, int stage) {
  constexpr int kExperts = 8;
  const int places = RanksAlong(c, stage, Direction::kTensor) *
                     RanksAlong(c, stage, Direction::kContext) *
                     RanksAlong(c, stage, Direction::kData);
  if (c.at("expert") == "1") return 1;
  return std::gcd(places, c.at("expert") == "2" ? 2 : kExperts);
}

int KeyHeadsOf(const Configuration& c) {
  const std::string& model = c.at("model");
  if (model == "gpt" || model == "m6") return 4;
  return model == "llama one" ? 1 : 2;
}

std::string RecipeOf(const Configuration& c) {
  const std::string& model = c.at("model");
  if (model == "moe" || model == "m6") return "tiny_" + model;
  return absl::StartsWith(model, "llama") ? "tiny_llama" : "tiny";
}

std::vector<std::string> SetsOf(const Configuration& c) {
  std::vector<std::string> sets = RunTable(kAxes, kRules, 0).Sets(c);
  for (const std::string& word : StepWords()) sets.push_back(word);
  for (const int stage : {0, 1}) {
    const auto ranks = [&](Direction direction) {
      return RanksAlong(c, stage, direction);
    };
    const std::string parallel = absl::StrCat("stage.", stage, ".parallel.");
    sets.push_back(
        absl::StrCat(parallel, "tensor=", ranks(Direction::kTensor)));
    sets.push_back(
        absl::StrCat(parallel, "context=", ranks(Direction::kContext)));
    sets.push_back(
        absl::StrCat(parallel, "pipeline=", ranks(Direction::kPipeline)));
    sets.push_back(absl::StrCat(parallel, "data=", ranks(Direction::kData)));
    sets.push_back(absl::StrCat(parallel, "expert=", ExpertsOf(c, stage)));
  }
  return sets;
}

std::string CommandOf(const Configuration& c) {
  return TrainCommand(RanksOf(c), RecipeOf(c), SetsOf(c));
}

Configuration OnOneRank(Configuration c) {
  c["layouts"] = kOne;
  c["sequence"] = "true";
  c["schedule"] = "1f1b";
  c["zero"] = "0";
  c["recompute"] = "norm+activation";
  c["expert"] = "1";
  c["dispatch"] = "gather";
  return c;
}

Configuration OverAnotherLayout(const Configuration& c, uint64_t seed) {
  return RunTable(kAxes, kRules, seed).Another(c, {kRounding});
}

Configuration WithTheSameBits(Configuration c) {
  std::string& zero = c.at("zero");
  if (zero != "2 in parts") zero = zero == "0" ? "2" : "0";
  c["recompute"] = c.at("recompute") == "block" ? "none" : "block";
  // The gathering ranks add more than two outputs in another order.
  std::string& dispatch = c.at("dispatch");
  if (dispatch == "all-to-all") {
    dispatch = "little room";
  } else if (dispatch == "little room" || c.at("model") == "moe") {
    dispatch = c.at("expert") == "1" ? "gather" : "all-to-all";
  }
  const int before = RanksAlong(c, 0, Direction::kPipeline),
            after = RanksAlong(c, 1, Direction::kPipeline);
  if (c.at("tied") == "true") return c;
  if (c.at("share") != "none" && before > 1) return c;
  // Both stages have as many ranks.
  const int times = std::gcd(before, after);
  std::string& layouts = c.at("layouts");
  layouts[Digit(0, Direction::kPipeline)] =
      static_cast<char>('0' + before / times);
  layouts[Digit(1, Direction::kPipeline)] =
      static_cast<char>('0' + after / times);
  c["schedule"] = c.at("schedule") == "1f1b" ? "zero-bubble" : "1f1b";
  return c;
}

}  // namespace delink::testing
