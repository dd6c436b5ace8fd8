// Runs over tensor, context and pipeline ranks, with the switch of
// Pseudo-to-Real in the middle and often another layout after it, against the
// same run on one rank: losses, gradient norms, whole final weights and
// moments. Sums are made in another order, so they are close, not equal; the
// losses on both sides of the switch are the same bits, and so is the run of
// another layout that makes the same sums. Configurations are drawn; of a
// failure the whole one is told, as a command line.
//
//   DELINK_LAYOUTS=600 DELINK_LAYOUTS_SEED=2 layouts_run_test
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/recipes/run/layout_rows.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::layouts_run_test {
namespace {

constexpr int64_t kSteps = 20;  // recipes/tiny*.toml
constexpr uint64_t kRows = 0, kFullRows = 60;

// How far apart runs may be that differ by the rounding of sums: derived in
// docs/equality.md. Losses, norms and moments relatively, weights in units of
// the learning rate.
struct Tolerance {
  double lr, loss, norm, moments, median, tail, tensor;
};
Tolerance ToleranceOf(const std::string& optimizer) {
  static const std::map<std::string, Tolerance> kTolerances = {
      {"adamw", {1e-3, 1e-5, 5e-5, 5e-5, 1e-3, 0.05, 0.05}},
      {"sgd", {0.02, 1e-5, 5e-5, 5e-5, 2e-5, 1e-4, 1e-3}},
      {"lion", {3e-4, 1e-4, 5e-3, 5e-3, 0.05, 4, 2}},
      {"adafactor", {1e-3, 1e-5, 1e-3, 1e-3, 1e-3, 0.05, 0.05}},
      {"muon", {1e-2, 1e-5, 1e-3, 1e-3, 5e-3, 0.02, 0.02}}};
  return kTolerances.at(optimizer);
}

// What an optimizer keeps.
std::set<std::string> MomentsOf(const std::string& optimizer) {
  if (optimizer == "adafactor") return {"column", "row"};
  if (optimizer == "adamw" || optimizer == "muon") return {"m", "v"};
  return {"m"};
}

const std::vector<LayoutRow>& Drawn() {
  static const std::vector<LayoutRow> rows =
      LayoutRows(RowCount("DELINK_LAYOUTS", kRows, kFullRows),
                 FromEnvironment("DELINK_LAYOUTS_SEED", 5));
  return rows;
}
// Of each three the first.
std::vector<LayoutRow> Third() {
  std::vector<LayoutRow> rows = Drawn();
  std::erase_if(rows, [](const LayoutRow& row) { return row.index % 3 != 0; });
  return rows;
}

// Of each optimizer and kind of model the first.
std::vector<LayoutRow> OneOfEach() {
  std::vector<LayoutRow> rows = Drawn();
  std::set<std::string> seen;
  std::erase_if(rows, [&](const LayoutRow& row) {
    const Configuration& c = row.configuration;
    return !seen.insert(c.at("optimizer") + RecipeOf(c)).second;
  });
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

struct Squares {
  double apart = 0, size = 0;

  void Add(const std::vector<float>& a, const std::vector<float>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      const double difference = double{a[i]} - b[i];
      apart += difference * difference;
      size += double{b[i]} * b[i];
    }
  }
};

// |a - b| / |b| of what the optimizer keeps: of first and second moments each
// by itself, since one is as large as the square of the other.
std::map<std::string, double> MomentDifferences(const Tensors& a,
                                                const Tensors& b) {
  std::map<std::string, Squares> kinds;
  for (const auto& [name, values] : b) {
    if (!absl::StartsWith(name, "/optimizer/")) continue;
    kinds[name.substr(name.rfind('/') + 1)].Add(a.at(name), values);
  }
  std::map<std::string, double> differences;
  for (const auto& [kind, squares] : kinds) {
    EXPECT_GT(squares.size, 0) << kind;
    differences[kind] = std::sqrt(squares.apart / squares.size);
  }
  return differences;
}

// The weight that is furthest apart, by root mean square. Without biases of
// attention: the gradient of a gpt's keys' is rounding alone.
std::pair<double, std::string> FurthestWeight(const Tensors& a,
                                              const Tensors& b) {
  std::pair<double, std::string> furthest;
  for (const auto& [name, values] : b) {
    if (!absl::StartsWith(name, "/model/")) continue;
    if (absl::EndsWith(name, "attn/qkv/bias")) continue;
    Squares squares;
    squares.Add(a.at(name), values);
    const auto count = static_cast<double>(values.size());
    furthest = std::max(furthest, {std::sqrt(squares.apart / count), name});
  }
  return furthest;
}

class Layouts : public ::testing::Test {
 protected:
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
  static Runs& RunsOf(const Configuration& c) {
    static std::map<std::string, Runs> all;
    const std::string recipe = RecipeOf(c);
    return all.try_emplace(recipe, recipe).first->second;
  }
  static void Go(const Configuration& c, RunRequest request) {
    SCOPED_TRACE(CommandOf(c));
    const std::vector<std::string> besides = request.sets;
    request.sets = SetsOf(c);
    request.sets.insert(request.sets.end(), besides.begin(), besides.end());
    request.ranks = RanksOf(c);
    ASSERT_NO_FATAL_FAILURE(RunsOf(c).runs.Go(request));
  }
  // The folder of the run on one rank, which is made once.
  static void MakeReference(const Configuration& c, std::string& folder) {
    const Configuration alone = OnOneRank(c);
    std::map<std::string, std::string>& made = RunsOf(c).references;
    std::string& reference = made[CommandOf(alone)];
    if (reference.empty()) {
      const std::string name = absl::StrCat("reference", made.size());
      ASSERT_NO_FATAL_FAILURE(Go(alone, {.out = name}));
      reference = name;
    }
    folder = reference;
  }
  static void ExpectClose(const Configuration& c, const std::string& out,
                          const std::string& reference);
};

void Layouts::ExpectClose(const Configuration& c, const std::string& out,
                          const std::string& reference) {
  const TinyRuns& runs = RunsOf(c).runs;
  const std::string& optimizer = c.at("optimizer");
  const std::vector<Step> a = runs.Steps(out), b = runs.Steps(reference);
  ASSERT_EQ(a.size(), kSteps);
  ASSERT_EQ(b.size(), kSteps);
  EXPECT_NEAR(a[0].loss, b[0].loss, 1e-6);
  const Tensors x = runs.Load(out, kSteps), y = runs.Load(reference, kSteps);
  ASSERT_EQ(x.size(), y.size());
  const Tolerance tolerance = ToleranceOf(optimizer);
  const double loss = LossDifference(a, b), norm = NormDifference(a, b),
               median = WeightDifference(x, y, 0.5) / tolerance.lr,
               tail = WeightDifference(x, y, 0.99) / tolerance.lr;
  const auto [apart, name] = FurthestWeight(x, y);
  std::set<std::string> kinds;
  double moments = 0;
  for (const auto& [kind, difference] : MomentDifferences(x, y)) {
    kinds.insert(kind);
    moments = std::max(moments, difference);
  }
  const std::string close = absl::StrJoin(
      {loss, norm, moments, median, tail, apart / tolerance.lr}, " ");
  RecordProperty("close", close);
  if (std::getenv("DELINK_LAYOUTS") != nullptr) {
    std::cout << "close: " << optimizer << " " << close << " " << name << "\n";
  }
  EXPECT_EQ(kinds, MomentsOf(optimizer));
  EXPECT_LT(loss, tolerance.loss);
  EXPECT_LT(norm, tolerance.norm);
  EXPECT_LT(moments, tolerance.moments);
  EXPECT_LT(median, tolerance.median);
  EXPECT_LT(tail, tolerance.tail);
  EXPECT_LT(apart / tolerance.lr, tolerance.tensor) << name;
}

class LayoutsRunTest : public Layouts,
                       public ::testing::WithParamInterface<LayoutRow> {
 protected:
  const Configuration row_ = GetParam().configuration;
};
INSTANTIATE_TEST_SUITE_P(Table, LayoutsRunTest, ::testing::ValuesIn(Drawn()));

class LayoutsResumeTest : public LayoutsRunTest {};
INSTANTIATE_TEST_SUITE_P(Table, LayoutsResumeTest,
                         ::testing::ValuesIn(Third()));

TEST_P(LayoutsRunTest, IsTheRunOnOneRank) {
  std::string reference;
  ASSERT_NO_FATAL_FAILURE(MakeReference(row_, reference));
  const std::string out = absl::StrCat("run", GetParam().index);
  ASSERT_NO_FATAL_FAILURE(Go(row_, {.out = out}));
  const TinyRuns& runs = RunsOf(row_).runs;
  const std::vector<Switch> switches = runs.Switches(out);
  ASSERT_EQ(switches.size(), 1u);
  EXPECT_EQ(switches[0].loss_before, switches[0].loss_after);
  ExpectClose(row_, out, reference);

  const Configuration other = WithTheSameBits(row_);
  SCOPED_TRACE("the same bits as: " + CommandOf(other));
  ASSERT_NO_FATAL_FAILURE(Go(other, {.out = out + "other"}));
  runs.ExpectSameBits(out, out + "other", kSteps);
  const std::vector<Switch> others = runs.Switches(out + "other");
  ASSERT_EQ(others.size(), 1u);
  EXPECT_EQ(others[0].loss_after, switches[0].loss_after);
}

// Stopped, and gone on with over another layout.
TEST_P(LayoutsResumeTest, GoesOnOverAnother) {
  std::string reference;
  ASSERT_NO_FATAL_FAILURE(MakeReference(row_, reference));
  const uint64_t index = GetParam().index;
  const Configuration then = OverAnotherLayout(row_, index);
  ASSERT_NE(then.at("layouts"), row_.at("layouts"));
  const std::string out = absl::StrCat("stopped", index);
  const int64_t stop = index % 2 == 0 ? 7 : 13;  // on each side of the switch
  ASSERT_NO_FATAL_FAILURE(Go(row_, {.out = out, .until_step = stop}));
  ASSERT_EQ(RunsOf(row_).runs.Steps(out).size(), stop);
  SCOPED_TRACE("stopped, then: " + CommandOf(then));
  ASSERT_NO_FATAL_FAILURE(Go(then, {.out = out, .resume = true}));
  ExpectClose(row_, out, reference);
}

// The tolerances are for what the rounding of sums does on one rank as well,
// where micro-batches are of another size; a learning rate that is off by a
// hundredth is outside of them.
class LayoutsToleranceTest : public Layouts,
                             public ::testing::WithParamInterface<LayoutRow> {};
INSTANTIATE_TEST_SUITE_P(Table, LayoutsToleranceTest,
                         ::testing::ValuesIn(OneOfEach()));

TEST_P(LayoutsToleranceTest, IsForRoundingAlone) {
  const Configuration& row = GetParam().configuration;
  std::string reference;
  ASSERT_NO_FATAL_FAILURE(MakeReference(row, reference));
  const Configuration alone = OnOneRank(row);
  const std::string regrouped = absl::StrCat("regrouped", GetParam().index);
  ASSERT_NO_FATAL_FAILURE(
      Go(alone, {.sets = {"run.micro_batch=1"}, .out = regrouped}));
  ExpectClose(row, regrouped, reference);
  const std::string out = absl::StrCat("further", GetParam().index);
  ASSERT_NO_FATAL_FAILURE(
      Go(alone, {.sets = {"stage.0.lr_scale=1.01", "stage.1.lr_scale=1.01"},
                 .out = out}));
  const TinyRuns& runs = RunsOf(row).runs;
  const Tensors x = runs.Load(out, kSteps), y = runs.Load(reference, kSteps);
  const Tolerance tolerance = ToleranceOf(row.at("optimizer"));
  EXPECT_GT(LossDifference(runs.Steps(out), runs.Steps(reference)),
            tolerance.loss);
  EXPECT_GT(WeightDifference(x, y, 0.5) / tolerance.lr, tolerance.median);
}

// By stage: the ranks along each direction, and what they meet in.
std::set<std::string> SeenIn(const Configuration& c, int stage) {
  const auto along = [&](Direction direction) {
    return RanksAlong(c, stage, direction);
  };
  const std::map<std::string, int> ranks = {
      {"tensor", along(Direction::kTensor)},
      {"context", along(Direction::kContext)},
      {"pipeline", along(Direction::kPipeline)},
      {"data", along(Direction::kData)}};
  std::set<std::string> seen;
  for (const auto& [direction, count] : ranks) {
    seen.insert(absl::StrCat(direction, " ", count));
    if (count == 1) continue;
    for (const auto& [axis, value] : c) {
      seen.insert(absl::StrCat(axis, " ", value, " over ", direction));
    }
  }
  if (ranks.at("tensor") > 1) {
    seen.insert(absl::StrCat("schedule ", c.at("schedule"), " over pipeline ",
                             ranks.at("pipeline"), " x tensor"));
  }
  if (ranks.at("tensor") > KeyHeadsOf(c)) {
    seen.insert("fewer heads of keys than tensor ranks");
  }
  return seen;
}

TEST(LayoutRowsTest, HaveEachValueInEffect) {
  std::set<std::string> seen;
  for (const LayoutRow& row : Drawn()) {
    const Configuration& c = row.configuration;
    for (const int stage : {0, 1}) seen.merge(SeenIn(c, stage));
    if (c.at("layouts") == "1 1 1 4, 2 1 2 1") {
      seen.insert(absl::StrCat("data to tensor x pipeline, ", c.at("stages")));
    }
  }
  std::set<std::string> wanted = {"tensor 1",
                                  "tensor 2",
                                  "tensor 4",
                                  "context 1",
                                  "context 2",
                                  "pipeline 1",
                                  "pipeline 2",
                                  "pipeline 4",
                                  "data 1",
                                  "data 2",
                                  "data 4",
                                  "data to tensor x pipeline, calibrated",
                                  "fewer heads of keys than tensor ranks"};
  for (const std::string schedule : {"1f1b", "zero-bubble", "interleaved"}) {
    for (const int pipeline : {2, 4}) {
      wanted.insert(absl::StrCat("schedule ", schedule, " over pipeline ",
                                 pipeline, " x tensor"));
    }
  }
  // QK norm is in both llamas (recipes/tiny_llama.toml).
  for (const Axis& axis : LayoutAxes()) {
    for (const Value& value : axis.values) {
      if (axis.name == "layouts") continue;
      for (const std::string over : {"tensor", "context", "pipeline", "data"}) {
        wanted.insert(absl::StrCat(axis.name, " ", value.name, " over ", over));
      }
    }
  }
  for (const std::string& one : seen) wanted.erase(one);
  EXPECT_EQ(absl::StrJoin(wanted, "; "), "") << "in no row";
}

}  // namespace
}  // namespace delink::testing::layouts_run_test
