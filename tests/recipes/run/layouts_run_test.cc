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

const int64_t kSteps = RunSteps();
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
                 FromEnvironment("DELINK_LAYOUTS_SEED", 6));
  return rows;
}

// Of each optimizer and kind of model the first.
std::set<uint64_t> OneOfEach() {
  std::set<std::string> seen;
  std::set<uint64_t> first;
  for (const LayoutRow& row : Drawn()) {
    const Configuration& c = row.configuration;
    if (seen.insert(c.at("optimizer") + RecipeOf(c)).second) {
      first.insert(row.index);
    }
  }
  return first;
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

// What a run to the end has left.
struct Result {
  std::vector<Step> steps;
  Tensors tensors;
};

void ExpectClose(const std::string& optimizer, const Result& is,
                 const Result& reference) {
  ASSERT_EQ(is.steps.size(), kSteps);
  ASSERT_EQ(reference.steps.size(), kSteps);
  EXPECT_NEAR(is.steps[0].loss, reference.steps[0].loss, 1e-6);
  const Tensors &x = is.tensors, &y = reference.tensors;
  ASSERT_EQ(x.size(), y.size());
  const Tolerance tolerance = ToleranceOf(optimizer);
  const double loss = LossDifference(is.steps, reference.steps),
               norm = NormDifference(is.steps, reference.steps),
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
  ::testing::Test::RecordProperty("close", close);
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

// All that a row is asked stands in one test, whose run on one rank is made
// once.
class LayoutsRunTest : public ::testing::TestWithParam<LayoutRow> {
 protected:
  LayoutsRunTest()
      : row_(GetParam().configuration),
        index_(GetParam().index),
        runs_(RunsOf(RecipeOf(row_))) {}

  static TinyRuns& RunsOf(const std::string& recipe) {
    static std::map<std::string, TinyRuns> all;
    const auto [at, is_new] =
        all.try_emplace(recipe, recipe, DocumentLines(), "text.jsonl");
    if (is_new) {
      at->second.sets = {"run.checkpoint_every=0", "run.norms_every=0",
                         "run.micro_batch=2"};
    }
    return at->second;
  }
  std::string Out(const std::string& name) const {
    return absl::StrCat(name, index_);
  }
  void Go(const Configuration& c, RunRequest request) {
    SCOPED_TRACE(CommandOf(c));
    const std::vector<std::string> besides = request.sets;
    request.sets = SetsOf(c);
    request.sets.insert(request.sets.end(), besides.begin(), besides.end());
    request.ranks = RanksOf(c);
    ASSERT_NO_FATAL_FAILURE(runs_.Go(request));
  }
  // To the end.
  void Through(const Configuration& c, const RunRequest& request,
               Result& result) {
    ASSERT_NO_FATAL_FAILURE(Go(c, request));
    result = {.steps = runs_.Steps(request.out),
              .tensors = runs_.Load(request.out, kSteps)};
  }
  void IsTheRunOnOneRank();
  void GoesOnOverAnother();
  void IsForRoundingAlone();

  const Configuration row_;
  const uint64_t index_;
  TinyRuns& runs_;
  Result reference_;  // the run on one rank
};
INSTANTIATE_TEST_SUITE_P(Table, LayoutsRunTest, ::testing::ValuesIn(Drawn()));

void LayoutsRunTest::IsTheRunOnOneRank() {
  const std::string out = Out("run"), with_others = Out("others");
  Result result, others;
  ASSERT_NO_FATAL_FAILURE(Through(row_, {.out = out}, result));
  const std::vector<Switch> switches = runs_.Switches(out);
  ASSERT_EQ(switches.size(), 1u);
  EXPECT_EQ(switches[0].loss_before, switches[0].loss_after);
  ExpectClose(row_.at("optimizer"), result, reference_);

  const Configuration other = WithTheSameBits(row_);
  SCOPED_TRACE("the same bits as: " + CommandOf(other));
  ASSERT_NO_FATAL_FAILURE(Through(other, {.out = with_others}, others));
  EXPECT_EQ(FirstDifference(result.steps, others.steps), "");
  EXPECT_EQ(FirstDifference(result.tensors, others.tensors), "");
  const std::vector<Switch> switched = runs_.Switches(with_others);
  ASSERT_EQ(switched.size(), 1u);
  EXPECT_EQ(switched[0].loss_after, switches[0].loss_after);
}

// Stopped, and gone on with over another layout.
void LayoutsRunTest::GoesOnOverAnother() {
  const Configuration then = OverAnotherLayout(row_, index_);
  ASSERT_NE(then.at("layouts"), row_.at("layouts"));
  const std::string out = Out("stopped");
  // On each side of the switch.
  const int64_t stop = kSteps / 2 + (index_ % 2 == 0 ? -3 : 3);
  ASSERT_NO_FATAL_FAILURE(Go(row_, {.out = out, .until_step = stop}));
  ASSERT_EQ(runs_.Steps(out).size(), stop);
  SCOPED_TRACE("stopped, then: " + CommandOf(then));
  Result result;
  ASSERT_NO_FATAL_FAILURE(Through(then, {.out = out, .resume = true}, result));
  ExpectClose(row_.at("optimizer"), result, reference_);
}

// The tolerances are for what the rounding of sums does on one rank as well,
// where micro-batches are of another size; a learning rate that is off by a
// hundredth is outside of them.
void LayoutsRunTest::IsForRoundingAlone() {
  const Configuration alone = OnOneRank(row_);
  Result regrouped, further;
  ASSERT_NO_FATAL_FAILURE(
      Through(alone, {.sets = {"run.micro_batch=1"}, .out = Out("regrouped")},
              regrouped));
  ExpectClose(row_.at("optimizer"), regrouped, reference_);
  ASSERT_NO_FATAL_FAILURE(
      Through(alone,
              {.sets = {"stage.0.lr_scale=1.01", "stage.1.lr_scale=1.01"},
               .out = Out("further")},
              further));
  const Tolerance tolerance = ToleranceOf(row_.at("optimizer"));
  EXPECT_GT(LossDifference(further.steps, reference_.steps), tolerance.loss);
  EXPECT_GT(
      WeightDifference(further.tensors, reference_.tensors, 0.5) / tolerance.lr,
      tolerance.median);
}

TEST_P(LayoutsRunTest, HasItsProperties) {
  ASSERT_NO_FATAL_FAILURE(
      Through(OnOneRank(row_), {.out = Out("reference")}, reference_));
  ASSERT_NO_FATAL_FAILURE(IsTheRunOnOneRank());
  if (index_ % 3 == 0) {
    ASSERT_NO_FATAL_FAILURE(GoesOnOverAnother());
  }
  if (OneOfEach().contains(index_)) {
    ASSERT_NO_FATAL_FAILURE(IsForRoundingAlone());
  }
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
  const int experts = ExpertsOf(c, stage);
  if (experts > 1) seen.insert(absl::StrCat("expert ", experts));
  if (experts > ranks.at("tensor") * ranks.at("context")) {
    seen.insert("experts over data");
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
                                  "expert 2",
                                  "expert 4",
                                  "expert 8",
                                  "experts over data",
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
