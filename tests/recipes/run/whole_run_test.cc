// What holds of every run (docs/equality.md): configurations times properties.
// The configurations are drawn so that every two values of two axes meet; of a
// failure the whole configuration is told, as a command line.
//
//   DELINK_RUNS=200 DELINK_RUNS_SEED=2 whole_run_test    # more, others
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/recipes/run/hybrid.h"
#include "tests/recipes/run/run_table.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::whole_run_test {
namespace {

const int64_t kSteps = RunSteps(), kSwitch = kSteps / 2;
constexpr double kLr = 1e-3;  // of recipes/tiny*.toml, of AdamW

constexpr Change kRun = Change::kRun, kRounding = Change::kRounding,
                 kNothing = Change::kNothing;

// A new axis is a line here. A value without words is the recipe's own, or read
// by Go() or by a property.
const std::vector<Axis> kAxes = {
    {"model", kRun, {{"gpt"}, {"llama"}, {"own"}}},
    {"tied",
     kRun,
     {{"true", "model.tied=true"}, {"false", "model.tied=false"}}},
    {"dropout",
     kRun,
     {{"0", "model.dropout=0.0"}, {"0.1", "model.dropout=0.1"}}},
    {"documents", kRun, {{"packed"}, {"masked", "data.documents=masked"}}},
    {"precision", kRun, {{"fp32"}, {"bf16", "run.precision=bf16"}}},
    {"master",
     kRun,
     {{"fp32"}, {"split", "run.master=split"}, {"none", "run.master=none"}}},
    {"gradients", kRun, {{"fp32"}, {"bf16", "run.gradients=bf16"}}},
    {"optimizer",
     kRun,
     {{"adamw"},
      {"sgd",
       "optimizer.kind=sgd optimizer.lr=0.1 optimizer.nesterov=true "
       "optimizer.decay=0.01"},
      {"sgd_plain",
       "optimizer.kind=sgd optimizer.lr=0.1 optimizer.momentum=0.0"},
      {"lion", "optimizer.kind=lion"},
      {"adafactor", "optimizer.kind=adafactor optimizer.lr=3e-2"},
      {"muon",
       "optimizer.kind=muon optimizer.lr=1e-2 optimizer.adamw_lr=3e-3 "
       "optimizer.betas=[0.95,0.95]"}}},
    {"moments",
     kRun,
     {{"fp32"},
      {"bf16", "optimizer.moments=bf16"},
      {"8bit", "optimizer.moments=8bit"}}},
    {"clip",
     kRun,
     {{"norm"},
      {"none", "optimizer.clip=0.0"},
      {"element", "optimizer.clip_value=0.01"},
      {"skip",
       "optimizer.skip.outlier=1e-6 optimizer.skip.window=4 "
       "optimizer.skip.most=20"}}},
    {"share",
     kRun,
     {{"all"},
      {"groups", "stage.0.share=groups:2"},
      {"cycle", "stage.0.share=cycle:2"},
      {"parts", "stage.0.share={attention=\"all\",mlp=\"groups:2\"}"},
      {"none", "stage.0.share=none"}}},
    {"depth",
     kRun,
     {{"all"},
      {"copy", "stage.0.depth=2 stage.0.visit=even"},
      {"zero", "stage.0.depth=2 stage.0.visit=even stage.1.grow=zero"}}},
    {"state",
     kRun,
     {{"scale"},
      {"reset", "stage.1.state=reset"},
      {"copy", "stage.1.state=copy"},
      {"calibrated", "stage.1.state=calibrated"}}},
    {"ranks", kRounding, {{"1"}, {"2"}, {"4"}}},
    {"micro_batch",
     kRounding,
     {{"1", "run.micro_batch=1"},
      {"2"},
      {"4", "run.micro_batch=4"},
      {"8", "run.micro_batch=8"}}},
    {"order",
     kRounding,
     {{"micro_batch"}, {"layer", "run.order=layer"}},
     {{"share", "none"}, {"tied", "false"}}},
    {"zero",
     kNothing,
     {{"0"},
      {"2 and 3", "stage.0.parallel.zero=2 stage.1.parallel.zero=3"},
      {"before", "stage.0.parallel.zero=2"},
      {"3 and 1", "stage.0.parallel.zero=3 stage.1.parallel.zero=1"}}},
    {"recompute",
     kNothing,
     {{"norm+activation"},
      {"none", "run.recompute=none"},
      {"block", "run.recompute=block"}}},
    {"lanes", kNothing, {{"one"}, {"threads", "run.threads=2"}}},
    {"watched",
     kNothing,
     {{"no"}, {"yes", "run.probe_every=4 run.norms_every=3"}}},
    // Where the run is stopped, and which layout it goes on in.
    {"stop", kNothing, {{"before"}, {"at"}, {"after"}}},  // the switch
    {"goes_on", kRun, {{"as_before"}, {"otherwise"}}},
};

const std::vector<std::string> kNotAdamW = {"sgd", "sgd_plain", "lion",
                                            "adafactor", "muon"};
const std::vector<std::string> kGrowth = {"copy", "zero"};
const std::vector<Rule> kRules = {
    {"model", {"own"}, "tied", {"false"}},
    // Its blocks 0 and 2 are of one kind, 1 and 3 of another.
    {"depth", {"copy"}, "model", {"gpt", "llama"}},
    // One of whose sets none is visited.
    {"depth", kGrowth, "share", {"all", "groups", "parts", "none"}},
    {"depth", kGrowth, "state", {"scale", "reset", "copy"}},
    {"share", {"none"}, "tied", {"false"}},
    {"precision", {"fp32"}, "master", {"fp32"}},
    {"precision", {"fp32"}, "gradients", {"fp32"}},
    {"optimizer", kNotAdamW, "moments", {"fp32"}},
    {"ranks", {"1"}, "zero", {"0"}},
    {"ranks", {"2"}, "micro_batch", {"1", "2", "4"}},
    {"ranks", {"4"}, "micro_batch", {"1", "2"}},
    {"micro_batch", {"8"}, "zero", {"0"}},
    {"state", {"calibrated"}, "clip", {"norm", "none", "skip"}},
};

// How far apart runs may be that differ by the rounding of sums; where no row
// is, none is derived. Losses relatively: in fp32 by 2^-24 a term, a few
// thousand terms a sum, 20 steps that each carry the difference on (6e-7 was
// seen); in bf16 a master may be moved across the middle between two numbers,
// where the weight jumps by 2^-8 of its size (5e-5 was seen); and gradients may
// be rounded by 2^-8 each (2e-4 was seen). Final weights in units of the
// learning rate: AdamW turns noise in gradients that are almost zero into steps
// of that size, so that the bulk is held tightly and the tail loosely.
struct Tolerance {
  Configuration where;
  double loss;
  double median = HUGE_VAL, tail = HUGE_VAL;  // tail: 99 % of the elements
};
const std::vector<Tolerance> kTolerances = {
    {{{"precision", "fp32"}}, 2e-5},
    {{{"precision", "bf16"}, {"optimizer", "adamw"}, {"gradients", "fp32"}},
     5e-4},
    {{{"precision", "bf16"}, {"optimizer", "adamw"}, {"gradients", "bf16"}},
     1e-3},
    {{{"precision", "fp32"}, {"optimizer", "adamw"}, {"moments", "fp32"}},
     2e-5,
     0.01,
     0.3},
    {{{"precision", "bf16"},
      {"optimizer", "adamw"},
      {"gradients", "fp32"},
      {"master", "fp32"},
      {"moments", "fp32"}},
     5e-4,
     0.05,
     0.5},
};
// A threshold, which a rounding may cross, says what is skipped.
const Configuration kNoTolerance = {{"clip", "skip"}};

// The defaults in each precision, for both kinds of model. The first is where
// ranks and lanes meet (CMakeLists.txt).
const std::vector<Configuration> kFirst = [] {
  std::vector<Configuration> first;
  for (const std::string model : {"gpt", "llama"}) {
    for (const std::string precision : {"fp32", "bf16"}) {
      first.push_back({{"model", model},
                       {"precision", precision},
                       {"optimizer", "adamw"},
                       {"gradients", "fp32"},
                       {"master", "fp32"},
                       {"moments", "fp32"},
                       {"clip", "norm"},
                       {"depth", "all"},
                       {"state", "scale"}});
    }
  }
  first[0].insert({{"ranks", "4"}, {"zero", "0"}, {"lanes", "one"}});
  return first;
}();

// One that needs few configurations.
constexpr uint64_t kSeed = 12;
constexpr uint64_t kRows = 0, kFullRows = 60;

uint64_t Seed() { return FromEnvironment("DELINK_RUNS_SEED", kSeed); }

std::string Recipe(const Configuration& c) {
  return c.at("model") == "llama" ? "tiny_llama" : "tiny";
}

std::vector<std::string> Sets(const Configuration& c) {
  std::vector<std::string> sets = RunTable(kAxes, kRules, 0).Sets(c);
  for (const std::string& word : StepWords()) sets.push_back(word);
  return sets;
}

// As a person would run it.
std::string Command(const Configuration& c) {
  return absl::StrCat(TrainCommand(c.at("ranks")[0] - '0', Recipe(c), Sets(c)),
                      "  # stop ", c.at("stop"), ", go on ", c.at("goes_on"),
                      c.at("model") == "own" ? ", own model" : "");
}

struct Row {
  uint64_t index;
  Configuration configuration;
  friend std::ostream& operator<<(std::ostream& out, const Row& row) {
    return out << Command(row.configuration);
  }
};

std::vector<Row> Rows() {
  std::vector<Row> rows;
  for (const Configuration& c :
       RunTable(kAxes, kRules, Seed())
           .Cover(kFirst, RowCount("DELINK_RUNS", kRows, kFullRows))) {
    rows.push_back({.index = rows.size(), .configuration = c});
  }
  return rows;
}

class WholeRunTest : public ::testing::TestWithParam<Row> {
 protected:
  WholeRunTest()
      : table_(kAxes, kRules, Seed() + GetParam().index),
        base_(GetParam().configuration),
        runs_(Recipe(base_), DocumentLines(), "text.jsonl") {
    runs_.sets = {"run.checkpoint_every=0"};
  }

  // `words`: besides those of the configuration.
  void Go(const Configuration& c, RunRequest request,
          const std::vector<std::string>& words = {}) {
    SCOPED_TRACE(Command(c));
    request.sets = Sets(c);
    request.sets.insert(request.sets.end(), words.begin(), words.end());
    EXPECT_TRUE(absl::SimpleAtoi(c.at("ranks"), &request.ranks));
    request.lane_threads = c.at("lanes") == "threads";
    if (c.at("model") == "own") request.models = Hybrids;
    ASSERT_NO_FATAL_FAILURE(runs_.Go(request));
  }
  // To the end, through the switch.
  void Through(const Configuration& c, const RunRequest& request) {
    ASSERT_NO_FATAL_FAILURE(Go(c, request));
    ASSERT_EQ(runs_.Steps(request.out).size(), kSteps);
    const std::vector<Switch> switches = runs_.Switches(request.out);
    ASSERT_EQ(switches.size(), 1);
    EXPECT_EQ(switches[0].step, kSwitch);
    EXPECT_GT(switches[0].loss_before, 0);
    if (c.at("depth") == "all" || c.at("depth") == "zero") {
      EXPECT_EQ(switches[0].loss_before, switches[0].loss_after);
    }
  }

  void ExpectBitsOfBase(const std::string& out) {
    EXPECT_EQ(FirstDifference(runs_.Steps("base"), runs_.Steps(out)), "");
    EXPECT_EQ(FirstDifference(base_tensors_, runs_.Load(out, kSteps)), "");
  }
  void AnotherLayoutHasTheSameBits() {
    const Configuration other = table_.Another(base_, {kNothing});
    SCOPED_TRACE("the same bits as: " + Command(other));
    ASSERT_NO_FATAL_FAILURE(Through(other, {.out = "other"}));
    ExpectBitsOfBase("other");
    if (HasFailure()) SayWhichAxis(other);
  }
  void StoppedAndResumedHasTheSameBits() {
    Configuration then = base_;
    if (base_.at("goes_on") == "otherwise") {
      then = table_.Another(base_, {kNothing});
    }
    SCOPED_TRACE("stopped, then: " + Command(then));
    ASSERT_NO_FATAL_FAILURE(
        Go(base_, {.out = "stopped", .until_step = Stop()}));
    ASSERT_EQ(runs_.Steps("stopped").size(), Stop());
    ASSERT_NO_FATAL_FAILURE(Through(then, {.out = "stopped", .resume = true}));
    ExpectBitsOfBase("stopped");
  }
  // On other ranks, as it began.
  void MovedLosesNothing() {
    const Configuration other = table_.Another(base_, {kRounding, kNothing});
    SCOPED_TRACE("moved to: " + Command(other));
    ASSERT_NO_FATAL_FAILURE(
        Go(other,
           {.out = "moved",
            .until_step = Stop() + 1,
            .resume = true,
            .resume_from = runs_.Checkpoint("stopped", Stop())},
           {"stage.0.lr_scale=1e-32", "stage.1.lr_scale=1e-32"}));
    const Tensors before = runs_.Load("stopped", Stop());
    const Tensors after = runs_.Load("moved", Stop() + 1);
    for (const auto& [name, values] : before) {
      if (name.rfind("/model", 0) != 0) continue;
      // A weight that nothing has moved yet is zero, which any step moves.
      std::vector<float> moved = after.at(name);
      for (float& weight : moved) {
        if (std::abs(weight) < 1e-30F) weight = 0;
      }
      EXPECT_EQ(values, moved) << name;
    }
  }
  // Begun in another layout and gone on with in a third.
  void RoundingAloneIsClose() {
    if (Has(base_, kNoTolerance) ||
        std::none_of(kTolerances.begin(), kTolerances.end(),
                     [&](const Tolerance& t) { return Has(base_, t.where); })) {
      return;
    }
    const Configuration other = table_.Another(base_, {kRounding, kNothing});
    const Configuration then = table_.Another(other, {kRounding, kNothing});
    SCOPED_TRACE("close to: " + Command(other));
    SCOPED_TRACE("then: " + Command(then));
    ASSERT_NO_FATAL_FAILURE(Go(other, {.out = "close", .until_step = Stop()}));
    ASSERT_NO_FATAL_FAILURE(Through(then, {.out = "close", .resume = true}));
    // Before anything has moved, forward is the same but for the last sum.
    const std::vector<Step> a = runs_.Steps("base"), b = runs_.Steps("close");
    EXPECT_NEAR(a[0].loss, b[0].loss, 1e-12);
    const Tensors &x = base_tensors_, y = runs_.Load("close", kSteps);
    const double loss = LossDifference(a, b),
                 median = WeightDifference(x, y, 0.5) / kLr,
                 tail = WeightDifference(x, y, 0.99) / kLr;
    RecordProperty("close", absl::StrCat(loss, " ", median, " ", tail));
    for (const Tolerance& tolerance : kTolerances) {
      if (!Has(base_, tolerance.where)) continue;
      EXPECT_LT(loss, tolerance.loss);
      EXPECT_LT(median, tolerance.median);
      EXPECT_LT(tail, tolerance.tail);
    }
  }
  // Of a layout that has other bits: which of its axes alone has them.
  void SayWhichAxis(const Configuration& other) {
    for (const Axis& axis : kAxes) {
      Configuration one = base_;
      one[axis.name] = other.at(axis.name);
      if (one == base_ || !table_.Allows(one)) continue;
      ASSERT_NO_FATAL_FAILURE(Through(one, {.out = axis.name}));
      SCOPED_TRACE(axis.name + " alone");
      ExpectBitsOfBase(axis.name);
    }
  }
  int64_t Stop() const {
    const std::string& stop = base_.at("stop");
    return kSwitch + (stop == "at" ? 0 : stop == "before" ? -3 : 3);
  }

  RunTable table_;
  const Configuration base_;
  TinyRuns runs_;
  Tensors base_tensors_;  // what it came to
};
INSTANTIATE_TEST_SUITE_P(Table, WholeRunTest, ::testing::ValuesIn(Rows()));

TEST_P(WholeRunTest, HasItsProperties) {
  ASSERT_NO_FATAL_FAILURE(Through(base_, {.out = "base"}));
  base_tensors_ = runs_.Load("base", kSteps);
  ASSERT_NO_FATAL_FAILURE(AnotherLayoutHasTheSameBits());
  ASSERT_NO_FATAL_FAILURE(StoppedAndResumedHasTheSameBits());
  ASSERT_NO_FATAL_FAILURE(MovedLosesNothing());
  ASSERT_NO_FATAL_FAILURE(RoundingAloneIsClose());
}

TEST(WholeRunTableTest, EveryTwoValuesMeetAndRulesHold) {
  RunTable table(kAxes, kRules, kSeed);
  std::set<RunTable::Pair> missing = table.Pairs();
  const std::vector<Configuration> rows = table.Cover(kFirst, 0);
  for (const Configuration& row : rows) {
    EXPECT_EQ(row.size(), kAxes.size());
    EXPECT_TRUE(table.Allows(row)) << Command(row);
    for (const auto& a : row) {
      for (const auto& b : row) missing.erase({a, b});
    }
  }
  EXPECT_TRUE(missing.empty());
  EXPECT_LE(rows.size(), 45) << "more than the time of these tests";
}

// No row is compared with itself, nor with a run that may have other bits.
TEST(WholeRunTableTest, AnotherLayoutIsAnother) {
  RunTable table(kAxes, kRules, kSeed);
  for (const Configuration& row : table.Cover(kFirst, 0)) {
    const Configuration other = table.Another(row, {kNothing});
    SCOPED_TRACE(Command(row));
    for (const Axis& axis : kAxes) {
      bool changes = axis.change == kNothing;
      if (axis.name == "zero") changes = row.at("ranks") != "1";
      if (axis.name == "order") {
        changes = row.at("share") == "none" && row.at("tied") == "false";
      }
      EXPECT_EQ(other.at(axis.name) != row.at(axis.name), changes) << axis.name;
    }
  }
}

class SeedTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Recipes, SeedTest, ::testing::ValuesIn(kTinyRecipes));

TEST_P(SeedTest, AnotherSeedIsAnotherRun) {
  const TinyRuns runs(GetParam());
  runs.Go({.out = "a", .until_step = 3});
  runs.Go({.sets = {"run.seed=2"}, .out = "b", .until_step = 3});
  EXPECT_GT(LossDifference(runs.Steps("a"), runs.Steps("b")), 2e-5);
}

}  // namespace
}  // namespace delink::testing::whole_run_test
