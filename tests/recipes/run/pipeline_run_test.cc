// Runs over the stages of a pipeline, with the switch of Pseudo-to-Real in the
// middle: the bits of the same run without a pipeline, of as many data ranks;
// and stopped, and gone on with over another pipeline. Where a slab is used by
// several stages its gradients are added up in another order, and the runs are
// close. Configurations are drawn; of a failure the whole one is told, as a
// command line.
//
//   DELINK_PIPELINES=200 DELINK_PIPELINES_SEED=2 pipeline_run_test
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/recipes/run/run_table.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::pipeline_run_test {
namespace {

const int64_t kSteps = RunSteps();
constexpr double kLr = 1e-3;  // of recipes/tiny*.toml
constexpr uint64_t kRows = 0, kFullRows = 40;

constexpr Change kRun = Change::kRun, kNothing = Change::kNothing;

// A pipeline of six blocks: its name begins with how many ranks it has.
// `groups`: blocks 0 to 2 are in one chunk and 3 to 5 in one.
const std::string kLayers = "stage.0.parallel.layers=";
const std::string kTurns = " stage.0.parallel.schedule=interleaved";
const std::string kHalves = " stage.0.parallel.schedule=zero-bubble";
const std::vector<Value> kPipelines = {
    {"1 rank", ""},
    {"2 by cost", ""},
    {"2 groups", kLayers + "[3,3] stage.1.parallel.layers=[3,3]"},
    {"2 embedding groups", kLayers + "[0,6] stage.1.parallel.layers=[0,6]"},
    {"2 turns", kTurns},
    {"2 turns 3", kTurns + " stage.0.parallel.chunks=3"},
    // The schedule and the chunks are others after the switch.
    {"2 turns groups after", kLayers +
                                 "[3,3] stage.1.parallel.schedule=interleaved "
                                 "stage.1.parallel.layers=[0,3,3,0]"},
    {"2 halves after", "stage.1.parallel.schedule=zero-bubble"},
    {"2 halves", kHalves},
    {"3 groups turned", kLayers + "[0,3,3]"},
    {"3 halves", kHalves},
    {"4 by cost", ""},
    {"4 groups", kLayers + "[0,3,3,0]"},
    {"4 halves", kHalves},
    {"4 halves groups", kLayers + "[0,3,3,0]" + kHalves},
    {"4 turns", kTurns}};
const std::vector<std::string> kWithGroups = {
    "1 rank",   "2 groups",        "2 embedding groups", "2 turns groups after",
    "4 groups", "3 groups turned", "4 halves groups"};
// Those that also fit a stage of three blocks.
const std::vector<std::string> kWithDepth = {
    "1 rank",   "2 by cost", "2 turns",   "2 halves after",
    "2 halves", "3 halves",  "4 by cost", "4 halves"};

const std::vector<Axis> kAxes = {
    {"model", kRun, {{"gpt"}, {"llama"}}},
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
      {"grown", "stage.0.depth=3 stage.0.visit=even"},
      {"calibrated", "stage.1.state=calibrated stage.1.calibration_batches=2"},
      {"own batch", "stage.0.batch=16"}}},
    {"optimizer",
     kRun,
     {{"adamw"},
      {"muon",
       "optimizer.kind=muon optimizer.lr=1e-2 optimizer.adamw_lr=3e-3 "
       "optimizer.betas=[0.95,0.95]"}}},
    {"precision", kRun, {{"fp32"}, {"bf16", "run.precision=bf16"}}},
    // Data ranks, and micro-batches of each.
    {"batch",
     kRun,
     {{"1 x 8", "run.micro_batch=1"},
      {"1 x 4", "run.micro_batch=2"},
      {"2 x 4", "run.micro_batch=1"},
      {"2 x 1", "run.micro_batch=4"}}},
    {"pipeline", kNothing, kPipelines, {}, true},
    {"zero",
     kNothing,
     {{"0"},
      {"1", "stage.0.parallel.zero=1 stage.1.parallel.zero=1"},
      {"2", "stage.0.parallel.zero=2 stage.1.parallel.zero=2"},
      {"3", "stage.0.parallel.zero=3 stage.1.parallel.zero=3"},
      {"after", "stage.0.parallel.zero=1 stage.1.parallel.zero=3"}}},
    {"recompute",
     kNothing,
     {{"norm+activation"},
      {"none", "run.recompute=none"},
      {"block", "run.recompute=block"}}},
    {"stop", kNothing, {{"before"}, {"at"}, {"after"}}},  // the switch
};

const std::vector<std::string> kManyBatches = {"1 x 8", "1 x 4", "2 x 4"};
const std::vector<Rule> kRules = {
    {"share", {"groups"}, "pipeline", kWithGroups},
    {"stages", {"grown"}, "pipeline", kWithDepth},
    {"stages", {"grown"}, "share", {"none", "all"}},
    // The tolerances are for AdamW.
    {"optimizer", {"muon"}, "share", {"none", "groups"}},
    {"optimizer", {"muon"}, "tied", {"false"}},
    {"pipeline",
     {"2 turns", "2 turns 3", "2 turns groups after", "4 turns"},
     "batch",
     kManyBatches},
};

// As whole_run_test has them, for the rounding of sums.
struct Tolerance {
  double loss, median, tail;
};
Tolerance ToleranceOf(const Configuration& c) {
  return c.at("precision") == "fp32" ? Tolerance{2e-5, 0.01, 0.3}
                                     : Tolerance{5e-4, 0.05, 0.5};
}

// Whether no slab is used by layers of several chunks.
bool IsExact(const Configuration& c) {
  return c.at("tied") == "false" && c.at("share") != "all";
}

const std::vector<Configuration> kFirst = {
    // The one that thread sanitizers run.
    {{"tied", "false"},
     {"share", "none"},
     {"pipeline", "2 by cost"},
     {"batch", "2 x 4"}},
    {{"tied", "false"}, {"share", "none"}, {"pipeline", "4 turns"}},
    {{"tied", "false"},
     {"share", "none"},
     {"pipeline", "3 halves"},
     {"batch", "1 x 8"}},
    {{"tied", "false"}, {"share", "groups"}, {"pipeline", "4 halves groups"}},
    {{"tied", "false"}, {"share", "groups"}, {"pipeline", "4 groups"}},
    {{"tied", "false"},
     {"share", "groups"},
     {"pipeline", "2 turns groups after"}},
    {{"tied", "false"},
     {"share", "none"},
     {"pipeline", "4 halves"},
     {"stages", "grown"}},
    {{"tied", "false"},
     {"share", "groups"},
     {"pipeline", "2 groups"},
     {"stages", "calibrated"}},
    {{"tied", "false"},
     {"share", "groups"},
     {"pipeline", "4 groups"},
     {"stages", "whole"},
     {"optimizer", "muon"}},
    {{"tied", "false"},
     {"share", "none"},
     {"pipeline", "2 halves"},
     {"stages", "own batch"}},
    {{"tied", "true"}, {"share", "none"}, {"pipeline", "2 by cost"}},
    {{"tied", "false"}, {"share", "all"}, {"pipeline", "3 groups turned"}},
};

uint64_t Seed() { return FromEnvironment("DELINK_PIPELINES_SEED", 4); }

std::string Recipe(const Configuration& c) {
  return c.at("model") == "llama" ? "tiny_llama" : "tiny";
}

int PipelineOf(const Configuration& c) { return c.at("pipeline")[0] - '0'; }
int RanksOf(const Configuration& c) {
  return PipelineOf(c) * (c.at("batch")[0] - '0');
}

std::vector<std::string> Sets(const Configuration& c) {
  std::vector<std::string> sets = RunTable(kAxes, kRules, 0).Sets(c);
  for (const std::string& word : StepWords()) sets.push_back(word);
  sets.push_back("model.layers=6");
  if (PipelineOf(c) > 1) {
    sets.push_back(absl::StrCat("stage.0.parallel.pipeline=", PipelineOf(c)));
  }
  return sets;
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

std::vector<Row> Rows() {
  std::vector<Row> rows;
  for (const Configuration& c :
       RunTable(kAxes, kRules, Seed())
           .Cover(kFirst, RowCount("DELINK_PIPELINES", kRows, kFullRows))) {
    rows.push_back({c, rows.size()});
  }
  return rows;
}

// What metrics say that does not hang on time and memory.
std::vector<nlohmann::json> Facts(const TinyRuns& runs, const std::string& of) {
  return runs.RowsOf(of,
                     {"step", "loss", "grad_norm", "norms", "validation_loss",
                      "loss_before", "loss_after", "unique_parameters"});
}

class PipelineRunTest : public ::testing::TestWithParam<Row> {
 protected:
  PipelineRunTest()
      : row_(GetParam().configuration), runs_(RunsOf(Recipe(row_))) {}

  // Runs of a model, and those without a pipeline that have been made.
  struct Runs {
    explicit Runs(const std::string& recipe) : runs(recipe) {
      runs.sets = {"run.checkpoint_every=0", "run.norms_every=5",
                   absl::StrCat("run.validate_every=", kSteps / 2)};
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
  // The folder of the row's run without a pipeline, which is made once.
  void MakeReference() {
    Configuration c = row_;
    c["pipeline"] = "1 rank";
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
  void GoesOnOverAnother();
  void ExpectAsWithout(const std::string& folder) {
    const TinyRuns& runs = runs_.runs;
    if (IsExact(row_)) return runs.ExpectSameBits(reference_, folder, kSteps);
    const std::vector<Step> a = runs.Steps(reference_), b = runs.Steps(folder);
    ASSERT_EQ(a.size(), b.size());
    EXPECT_EQ(a[0].loss, b[0].loss);
    const Tensors x = runs.Load(reference_, kSteps),
                  y = runs.Load(folder, kSteps);
    const Tolerance tolerance = ToleranceOf(row_);
    EXPECT_LT(LossDifference(a, b), tolerance.loss);
    EXPECT_LT(WeightDifference(x, y, 0.5) / kLr, tolerance.median);
    EXPECT_LT(WeightDifference(x, y, 0.99) / kLr, tolerance.tail);
  }

  const Configuration row_;
  Runs& runs_;
  std::string reference_;
};
INSTANTIATE_TEST_SUITE_P(Table, PipelineRunTest, ::testing::ValuesIn(Rows()));

// Of each two rows the first is also stopped and goes on.
TEST_P(PipelineRunTest, IsTheRunWithout) {
  ASSERT_NO_FATAL_FAILURE(MakeReference());
  const std::string out = absl::StrCat("straight", GetParam().index);
  ASSERT_NO_FATAL_FAILURE(Go(row_, {.out = out}));
  ExpectAsWithout(out);
  if (IsExact(row_)) {
    EXPECT_EQ(Facts(runs_.runs, reference_), Facts(runs_.runs, out));
  }
  if (GetParam().index % 2 == 0) GoesOnOverAnother();
}

void PipelineRunTest::GoesOnOverAnother() {
  const Configuration then = RunTable(kAxes, kRules, Seed() + GetParam().index)
                                 .Another(row_, {kNothing});
  ASSERT_NE(then.at("pipeline"), row_.at("pipeline"));
  const std::string out = absl::StrCat("stopped", GetParam().index);
  const std::string& side = row_.at("stop");
  const int64_t stop = kSteps / 2 + (side == "at"       ? 0
                                     : side == "before" ? -3
                                                        : 3);
  ASSERT_NO_FATAL_FAILURE(Go(row_, {.out = out, .until_step = stop}));
  ASSERT_EQ(runs_.runs.Steps(out).size(), stop);
  SCOPED_TRACE("stopped, then: " + Command(then));
  ASSERT_NO_FATAL_FAILURE(Go(then, {.out = out, .resume = true}));
  ExpectAsWithout(out);
}

}  // namespace
}  // namespace delink::testing::pipeline_run_test
