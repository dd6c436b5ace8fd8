// Runs over tensor, context and pipeline ranks, with the switch of
// Pseudo-to-Real in the middle and often another layout after it, against the
// same run on one rank: losses, gradient norms, whole final weights and
// moments. Sums are made in another order, so they are close, not equal; the
// losses on both sides of the switch are the same bits. Configurations are
// drawn; of a failure the whole one is told, as a command line.
//
//   DELINK_LAYOUTS=600 DELINK_LAYOUTS_SEED=2 layouts_run_test
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/recipes/run/run_table.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing {
namespace {

constexpr int64_t kSteps = 20;  // recipes/tiny*.toml
constexpr uint64_t kRows = 60;

constexpr Change kRun = Change::kRun, kRounding = Change::kRounding;

// The ranks of a stage: "tensor context pipeline data".
std::string LayoutOf(int stage, const std::string& name) {
  const char* const keys[] = {"tensor", "context", "pipeline", "data"};
  std::string words;
  for (int i = 0; i < 4; ++i) {
    absl::StrAppend(&words, i == 0 ? "" : " ", "stage.", stage, ".parallel.",
                    keys[i], "=", name.substr(2 * static_cast<size_t>(i), 1));
  }
  return words;
}

Value Layouts(const std::string& before, const std::string& after) {
  return {absl::StrCat(before, ", ", after),
          absl::StrCat(LayoutOf(0, before), " ", LayoutOf(1, after))};
}

// Of 2, 4 and 8 ranks.
const std::vector<std::vector<std::string>> kLayouts = {
    {"2 1 1 1", "1 2 1 1", "1 1 2 1", "1 1 1 2"},
    {"4 1 1 1", "2 2 1 1", "2 1 2 1", "2 1 1 2", "1 2 2 1", "1 2 1 2",
     "1 1 2 2", "1 1 4 1"},
    {"2 2 2 1", "2 1 2 2", "4 1 2 1", "4 1 1 2", "2 1 4 1", "2 2 1 2",
     "4 2 1 1", "1 2 2 2"}};
const char* const kOne = "1 1 1 1, 1 1 1 1";

// Of each number of ranks every layout with itself and two others after it; the
// first is one rank.
std::vector<Value> LayoutPairs() {
  std::vector<Value> pairs = {Layouts("1 1 1 1", "1 1 1 1")};
  for (const std::vector<std::string>& some : kLayouts) {
    for (size_t i = 0; i < some.size(); ++i) {
      for (const size_t further : {0, 1, 3}) {
        pairs.push_back(Layouts(some[i], some[(i + further) % some.size()]));
      }
    }
  }
  return pairs;
}

int RanksOf(const Configuration& c) {
  int ranks = 1;
  for (size_t i = 0; i < 4; ++i) ranks *= c.at("layouts")[2 * i] - '0';
  return ranks;
}

const std::vector<Axis> kAxes = {
    {"model",
     kRun,
     {{"gpt", ""},
      {"gpt grouped", "model.kv_heads=2"},
      {"llama", ""},
      {"llama one", "model.kv_heads=1 model.qkv_bias=false"}}},
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
       "optimizer.lr=1e-3"},
      {"muon",
       "optimizer.kind=muon optimizer.lr=1e-2 optimizer.adamw_lr=1e-3"}}},
    {"dropout", kRun, {{"none"}, {"some", "model.dropout=0.1"}}},
    {"documents", kRun, {{"packed"}, {"masked", "data.documents=masked"}}},
    {"vocab", kRun, {{"257"}, {"259", "model.vocab=259"}}},
    {"layouts", kRounding, LayoutPairs()},
    {"sequence",
     kRounding,
     {{"true"},
      {"false",
       "stage.0.parallel.sequence=false "
       "stage.1.parallel.sequence=false"},
      {"after",
       "stage.0.parallel.sequence=false "
       "stage.1.parallel.sequence=true"}}},
    {"schedule",
     kRounding,
     {{"1f1b"},
      {"zero-bubble",
       "stage.0.parallel.schedule=zero-bubble "
       "stage.1.parallel.schedule=zero-bubble"}}},
    {"zero",
     kRounding,
     {{"0"},
      {"1", "stage.0.parallel.zero=1 stage.1.parallel.zero=1"},
      {"after", "stage.1.parallel.zero=1"}}},
    {"recompute",
     kRounding,
     {{"norm+activation"},
      {"none", "run.recompute=none"},
      {"block", "run.recompute=block"}}},
};

const std::vector<Rule> kRules = {};

// Of the 60 rows the furthest were, in losses, norms, median, tail and moments:
// 6e-9, 2e-7, 2e-6, 4e-5, 3e-7 with AdamW; 1e-5, 6e-4, 1e-3, 0.015, 1e-3
// with Adafactor, which divides by roots of small sums. Losses and norms are
// sums of float32, rounded by 2^-24 a term, over some thousand terms, which 20
// steps carry on. (At 0.1 SGD is at the edge of stability: another micro-batch
// on one rank already makes 1e-5 of 1e-9.) Weights in units of the learning
// rate: AdamW and Lion make whole steps of noise where a gradient is nearly
// zero, so that the bulk is held tightly and the tail loosely.
struct Tolerance {
  double lr, loss, norm, median, tail;
};
Tolerance ToleranceOf(const std::string& optimizer) {
  static const std::map<std::string, Tolerance> kTolerances = {
      {"adamw", {1e-3, 2e-5, 1e-3, 0.01, 0.3}},
      {"sgd", {0.02, 2e-5, 1e-3, 1e-3, 1e-2}},
      {"lion", {3e-4, 1e-4, 5e-3, 0.05, 4}},
      {"adafactor", {1e-3, 1e-4, 5e-3, 0.05, 0.5}},
      {"muon", {1e-2, 2e-5, 1e-3, 0.01, 0.3}}};
  return kTolerances.at(optimizer);
}

std::string Recipe(const Configuration& c) {
  return absl::StartsWith(c.at("model"), "llama") ? "tiny_llama" : "tiny";
}

std::vector<std::string> Sets(const Configuration& c) {
  return RunTable(kAxes, kRules, 0).Sets(c);
}

std::string Command(const Configuration& c) {
  return TrainCommand(RanksOf(c), Recipe(c), Sets(c));
}

struct Row {
  Configuration configuration;
  uint64_t index;
  friend std::ostream& operator<<(std::ostream& out, const Row& row) {
    return out << Command(row.configuration);
  }
};

// Of each `every` the first.
std::vector<Row> Rows(uint64_t every) {
  std::vector<Row> rows;
  RunTable table(kAxes, kRules, FromEnvironment("DELINK_LAYOUTS_SEED", 5));
  for (const Configuration& c :
       table.Cover({}, FromEnvironment("DELINK_LAYOUTS", kRows))) {
    rows.push_back({c, rows.size()});
  }
  std::erase_if(rows, [&](const Row& row) { return row.index % every != 0; });
  return rows;
}

// The largest relative difference of the norms, step by step.
double NormDifference(const std::vector<Step>& a, const std::vector<Step>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double size = std::abs(b[i].grad_norm);
    most = std::max(most, std::abs(a[i].grad_norm - b[i].grad_norm) / size);
  }
  return most;
}

// |a - b| / |b| of the moments whose names end so.
double MomentDifference(const Tensors& a, const Tensors& b) {
  double apart = 0, size = 0;
  for (const auto& [name, values] : b) {
    if (!absl::StartsWith(name, "/optimizer/")) continue;
    const std::vector<float>& others = a.at(name);
    for (size_t i = 0; i < values.size(); ++i) {
      const double difference = double{others[i]} - values[i];
      apart += difference * difference;
      size += double{values[i]} * values[i];
    }
  }
  return size == 0 ? 0 : std::sqrt(apart / size);
}

class LayoutsRunTest : public ::testing::TestWithParam<Row> {
 protected:
  LayoutsRunTest()
      : row_(GetParam().configuration), runs_(RunsOf(Recipe(row_))) {}

  // Runs of a model, and those on one rank that have been made.
  struct Runs {
    explicit Runs(const std::string& recipe)
        : runs(recipe, DocumentLines(), "text.jsonl") {
      runs.sets = {"run.checkpoint_every=0", "run.norms_every=0",
                   "run.micro_batch=2"};
    }
    TinyRuns runs;
    std::map<std::string, std::string> references;  // folders
  };
  static Runs& RunsOf(const std::string& recipe) {
    static std::map<std::string, Runs> all;
    return all.try_emplace(recipe, recipe).first->second;
  }
  void Go(const Configuration& c, RunRequest request) {
    SCOPED_TRACE(Command(c));
    request.sets = Sets(c);
    request.ranks = RanksOf(c);
    ASSERT_NO_FATAL_FAILURE(runs_.runs.Go(request));
  }
  // The folder of the row's run on one rank, which is made once.
  void MakeReference() {
    Configuration c = row_;
    c["layouts"] = kOne;
    c["sequence"] = "true";
    c["schedule"] = "1f1b";
    c["zero"] = "0";
    c["recompute"] = "norm+activation";
    std::string& folder = runs_.references[Command(c)];
    if (folder.empty()) {
      const std::string name =
          absl::StrCat("reference", runs_.references.size());
      ASSERT_NO_FATAL_FAILURE(Go(c, {.out = name}));
      folder = name;
    }
    reference_ = folder;
  }

  void ExpectCloseTo(const std::string& out) {
    const TinyRuns& runs = runs_.runs;
    const std::vector<Step> a = runs.Steps(out), b = runs.Steps(reference_);
    ASSERT_EQ(a.size(), b.size());
    EXPECT_NEAR(a[0].loss, b[0].loss, 1e-6);
    const Tensors x = runs.Load(out, kSteps), y = runs.Load(reference_, kSteps);
    const Tolerance tolerance = ToleranceOf(row_.at("optimizer"));
    const double loss = LossDifference(a, b), norm = NormDifference(a, b),
                 median = WeightDifference(x, y, 0.5) / tolerance.lr,
                 tail = WeightDifference(x, y, 0.99) / tolerance.lr,
                 moments = MomentDifference(x, y);
    RecordProperty("close", absl::StrCat(loss, " ", norm, " ", median, " ",
                                         tail, " ", moments));
    EXPECT_LT(loss, tolerance.loss);
    EXPECT_LT(norm, tolerance.norm);
    EXPECT_LT(median, tolerance.median);
    EXPECT_LT(tail, tolerance.tail);
    EXPECT_LT(moments, tolerance.norm);
  }

  const Configuration row_;
  Runs& runs_;
  std::string reference_;
};
INSTANTIATE_TEST_SUITE_P(Table, LayoutsRunTest, ::testing::ValuesIn(Rows(1)));

class LayoutsResumeTest : public LayoutsRunTest {};
INSTANTIATE_TEST_SUITE_P(Table, LayoutsResumeTest,
                         ::testing::ValuesIn(Rows(3)));

TEST_P(LayoutsRunTest, IsCloseToTheRunOnOneRank) {
  ASSERT_NO_FATAL_FAILURE(MakeReference());
  const std::string out = absl::StrCat("run", GetParam().index);
  ASSERT_NO_FATAL_FAILURE(Go(row_, {.out = out}));
  const TinyRuns& runs = runs_.runs;
  const std::vector<Switch> switches = runs.Switches(out);
  ASSERT_EQ(switches.size(), 1u);
  EXPECT_EQ(switches[0].loss_before, switches[0].loss_after);
  ExpectCloseTo(out);
}

// Stopped, and gone on with over another layout.
TEST_P(LayoutsResumeTest, GoesOnOverAnother) {
  ASSERT_NO_FATAL_FAILURE(MakeReference());
  const uint64_t index = GetParam().index;
  const Configuration then =
      RunTable(kAxes, kRules, index).Another(row_, {kRounding});
  ASSERT_NE(then.at("layouts"), row_.at("layouts"));
  const std::string out = absl::StrCat("stopped", index);
  const int64_t stop = index % 2 == 0 ? 7 : 13;  // on each side of the switch
  ASSERT_NO_FATAL_FAILURE(Go(row_, {.out = out, .until_step = stop}));
  ASSERT_EQ(runs_.runs.Steps(out).size(), stop);
  SCOPED_TRACE("stopped, then: " + Command(then));
  ASSERT_NO_FATAL_FAILURE(Go(then, {.out = out, .resume = true}));
  ExpectCloseTo(out);
}

}  // namespace
}  // namespace delink::testing
