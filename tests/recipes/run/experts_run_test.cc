// Runs over the expert axis, beside ranks along every other axis, with the
// switch of Pseudo-to-Real in the middle: each against the same run whose ranks
// all have all experts. Where no sum is cut the bits are the same; elsewhere
// runs differ by the rounding of sums. What changes no bit of a layout changes
// none here, and a run goes on over another number of expert ranks. Of a
// failure the whole configuration is told.
//
//   DELINK_EXPERTS=400 DELINK_EXPERTS_SEED=2 experts_run_test
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/tensor/bfloat16.h"
#include "tests/recipes/run/experts.h"
#include "tests/recipes/run/run_table.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::experts_run_test {
namespace {

constexpr Change kRun = Change::kRun, kRounding = Change::kRounding,
                 kNothing = Change::kNothing;
constexpr uint64_t kRows = 14, kFullRows = 120;
const int64_t kSteps = RunSteps();

// "tensor context pipeline data expert", and what may come after it.
const char* const kAlong[] = {"tensor", "context", "pipeline", "data",
                              "expert"};

const std::vector<Axis> kAxes = {
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
    {"optimizer",
     kRun,
     {{"adamw"},
      {"adamw 8bit", "optimizer.moments=8bit"},
      {"sgd", "optimizer.kind=sgd optimizer.lr=0.02"},
      {"lion", "optimizer.kind=lion optimizer.lr=3e-4"},
      {"adafactor",
       "optimizer.kind=adafactor optimizer.relative_step=false "
       "optimizer.lr=1e-3 optimizer.eps=1e-7"},
      {"muon",
       "optimizer.kind=muon optimizer.lr=1e-2 optimizer.adamw_lr=1e-3"}}},
    {"probe", kRun, {{"none"}, {"some", "run.probe_every=2"}}},
    {"precision",
     kRun,
     {{"fp32"},
      {"split", "run.precision=bf16 run.master=split"},
      {"none", "run.precision=bf16 run.master=none"}}},
    {"layouts",
     kRounding,
     {{"2 1 1 1 2"}, {"1 2 1 1 2"}, {"1 1 1 2 2"}, {"1 1 2 2 2"}, {"1 1 1 4 2"},
      {"1 1 1 4 4"}, {"2 1 1 2 2"}, {"2 1 1 2 4"}, {"1 2 1 2 4"}, {"4 1 1 1 2"},
      {"2 2 1 1 4"}, {"2 1 2 1 2"}, {"1 2 2 1 2"}, {"1 1 1 8 8"}, {"1 1 1 8 4"},
      {"2 1 1 4 8"}, {"2 2 1 2 4"}, {"2 1 2 2 4"}, {"1 1 2 4 4"}, {"2 1 1 4 2"},
      {"1 2 1 4 8"}, {"2 2 2 1 4"}},
     {},
     true},
    {"micro_batch",
     kRounding,
     {{"all", "run.micro_batch=0"}, {"1", "run.micro_batch=1"}}},
    {"sequence", kRounding, {{"true"}, Both("false", "sequence=false")}},
    {"zero",
     kNothing,
     {{"0"}, Both("1", "zero=1"), Both("2", "zero=2"), Both("3", "zero=3")}},
    {"recompute",
     kNothing,
     {{"norm+activation"},
      {"none", "run.recompute=none"},
      {"block", "run.recompute=block"}}},
    {"offload",
     kNothing,
     {{"none"},
      {"state",
       "stage.0.offload={state=\"host\"} "
       "stage.1.offload={state=\"host\"}"},
      {"all",
       "stage.0.offload={weights=\"host\",gradients=\"host\",update=\"host\"} "
       "stage.1.offload={weights=\"host\",gradients=\"host\",update=\"host\"}"},
      {"experts",
       "stage.1.offload={rows=[{match=\"*/mlp/*\",update=\"host\"}]}"}}}};

// Tensor ranks update a matrix together, which the host cannot.
const std::vector<Rule> kRules = {
    {"optimizer", {"adafactor", "muon"}, "offload", {"none", "state"}}};

int Along(const Configuration& c, size_t i) {
  return c.at("layouts")[2 * i] - '0';
}

int StageRanksOf(const Configuration& c) {
  return Along(c, 0) * Along(c, 1) * Along(c, 3);
}

int RanksOf(const Configuration& c) { return StageRanksOf(c) * Along(c, 2); }

// Samples of a data place in a micro-batch.
int64_t MicroBatchOf(const Configuration& c) {
  return c.at("micro_batch") == "1" ? 1 : 8 / Along(c, 3);
}

// Whether the ranks of a group of experts alone make a step's sums, and add to
// them once: then gathering and reducing within the visit is the same sum. A
// rank has 8-bit blocks of its own.
bool CutsNoSum(const Configuration& c) {
  return c.at("share") == "none" && c.at("optimizer") != "adamw 8bit" &&
         Along(c, 4) == StageRanksOf(c) && MicroBatchOf(c) * Along(c, 3) == 8;
}

std::vector<std::string> SetsOf(const Configuration& c) {
  std::vector<std::string> sets;
  for (const std::string& set : RunTable(kAxes, kRules, 0).Sets(c)) {
    if (set != "run.micro_batch=0") sets.push_back(set);
  }
  for (const std::string& word : StepWords()) sets.push_back(word);
  sets.push_back(absl::StrCat("run.micro_batch=", MicroBatchOf(c)));
  for (const int stage : {0, 1}) {
    for (size_t i = 0; i < std::size(kAlong); ++i) {
      sets.push_back(absl::StrCat("stage.", stage, ".parallel.", kAlong[i], "=",
                                  Along(c, i)));
    }
  }
  return sets;
}

Configuration WithExperts(Configuration c, int expert) {
  c["layouts"].back() = static_cast<char>('0' + expert);
  return c;
}

std::vector<Configuration> Drawn() {
  static const std::vector<Configuration> rows =
      RunTable(kAxes, kRules, FromEnvironment("DELINK_EXPERTS_SEED", 1))
          .Cover({}, RowCount("DELINK_EXPERTS", kRows, kFullRows));
  return rows;
}

struct Result {
  std::vector<Step> steps;
  Tensors tensors;
};

class ExpertsRunTest : public ::testing::TestWithParam<size_t> {
 protected:
  ExpertsRunTest() : row_(Drawn()[GetParam()]) {
    // The norm is a sum over cells, which are a rank's own.
    runs_.sets = {"run.checkpoint_every=0", "run.norms_every=0",
                  "optimizer.clip=0", "model.tied=false"};
  }
  void Go(const Configuration& c, RunRequest request) {
    SCOPED_TRACE(TrainCommand(RanksOf(c), "tiny", SetsOf(c)));
    request.sets = SetsOf(c);
    request.ranks = RanksOf(c);
    request.models = ModelsWithExperts;
    ASSERT_NO_FATAL_FAILURE(runs_.Go(request));
  }
  void Through(const Configuration& c, const RunRequest& request,
               Result& result) {
    ASSERT_NO_FATAL_FAILURE(Go(c, request));
    result = {.steps = runs_.Steps(request.out),
              .tensors = runs_.Load(request.out, kSteps)};
    ASSERT_EQ(result.steps.size(), kSteps);
  }
  void ExpectSameRun(const Result& is, const Result& was, bool bits) const;

  const Configuration row_;
  TinyRuns runs_;
};
INSTANTIATE_TEST_SUITE_P(Rows, ExpertsRunTest,
                         ::testing::Range(size_t{0}, Drawn().size()));

void ExpertsRunTest::ExpectSameRun(const Result& is, const Result& was,
                                   bool bits) const {
  if (bits) {
    for (size_t i = 0; i < is.steps.size(); ++i) {
      EXPECT_EQ(is.steps[i].loss, was.steps[i].loss) << i;
    }
    EXPECT_EQ(FirstDifference(is.tensors, was.tensors), "");
  }
  const bool narrow = row_.at("precision") != "fp32";
  const bool coarse = narrow || row_.at("optimizer") == "adamw 8bit";
  EXPECT_LT(LossDifference(is.steps, was.steps), coarse ? 1e-3 : 1e-5);
  const double rate = row_.at("optimizer") == "sgd"    ? 0.02
                      : row_.at("optimizer") == "lion" ? 3e-4
                                                       : 1e-3;
  EXPECT_LT(WeightDifference(is.tensors, was.tensors, 0.5) / rate,
            coarse ? 0.5 : 0.05);
}

TEST_P(ExpertsRunTest, IsTheRunOfRanksThatHaveAllExperts) {
  Result result, whole, other, resumed;
  ASSERT_NO_FATAL_FAILURE(Through(row_, {.out = "run"}, result));
  const std::vector<Switch> switches = runs_.Switches("run");
  ASSERT_EQ(switches.size(), 1u);
  EXPECT_EQ(switches[0].loss_before, switches[0].loss_after);
  ASSERT_NO_FATAL_FAILURE(
      Through(WithExperts(row_, 1), {.out = "whole"}, whole));
  {
    SCOPED_TRACE(CutsNoSum(row_) ? "no sum is cut" : "sums are cut");
    ExpectSameRun(result, whole, CutsNoSum(row_));
  }

  // Over a group within a data place, probes see the same micro-batches.
  const std::vector<Probe> probes = runs_.Probes("run"),
                           of_whole = runs_.Probes("whole");
  ASSERT_EQ(probes.size(), of_whole.size());
  const int within = Along(row_, 0) * Along(row_, 1);
  for (size_t i = 0; i < probes.size() && within % Along(row_, 4) == 0; ++i) {
    EXPECT_NEAR(probes[i].agreement / of_whole[i].agreement, 1, 1e-3);
  }

  RunTable table(kAxes, kRules, GetParam());
  ASSERT_NO_FATAL_FAILURE(
      Through(table.Another(row_, {kNothing}), {.out = "other"}, other));
  EXPECT_EQ(FirstDifference(result.steps, other.steps), "");
  EXPECT_EQ(FirstDifference(result.tensors, other.tensors), "");

  // On each side of the switch, over as many expert ranks as none or half.
  const int then = GetParam() % 3 == 0 ? 1 : Along(row_, 4) / 2;
  const int64_t stop = kSteps / 2 + (GetParam() % 2 == 0 ? -2 : 2);
  ASSERT_NO_FATAL_FAILURE(Go(row_, {.out = "stopped", .until_step = stop}));
  ASSERT_NO_FATAL_FAILURE(Through(WithExperts(row_, then),
                                  {.out = "stopped", .resume = true}, resumed));
  SCOPED_TRACE(absl::StrCat("stopped, then over ", then));
  ExpectSameRun(resumed, result, CutsNoSum(row_) && then == 1);
}

// Gains, which are exact, keep what bf16 rounds; all else is rounded.
TEST(ExactParametersTest, AreF32InABf16Run) {
  TinyRuns runs;
  RunRequest request{
      .sets = StepWords(), .out = "run", .models = ModelsWithExperts};
  for (const char* set : {"run.precision=bf16", "run.master=none"}) {
    request.sets.emplace_back(set);
  }
  ASSERT_NO_FATAL_FAILURE(runs.Go(request));
  for (const auto& [name, values] : runs.Load("run", kSteps)) {
    if (name.find("optimizer") != std::string::npos) continue;
    const auto rounded =
        std::ranges::count_if(values, [](float x) { return x == BFloat16(x); });
    const bool gain = name.find("/gain") != std::string::npos;
    EXPECT_EQ(rounded < std::ssize(values), gain) << name;
  }
}

TEST(ExpertsInput, IsRefusedWithOneLine) {
  const struct {
    int ranks;
    std::vector<std::string> sets;
    ModelList (*models)();
    const char* said;
  } cases[] = {
      {2,
       {"stage.0.parallel.expert=2"},
       BuiltInModels,
       "stage[0].parallel.expert: 2, but the model has no experts; leave it "
       "out"},
      {3,
       {"data.batch=6", "run.micro_batch=1", "stage.0.parallel.expert=3"},
       ModelsWithExperts,
       "stage[0].parallel.expert: 3 does not divide the 8 experts of "
       "blocks/0/mlp/weight [8, 2, 32]; use expert 2 or 4"},
      {4,
       {"run.micro_batch=1", "stage.1.parallel={expert=4, pipeline=2}"},
       ModelsWithExperts,
       "stage[1].parallel.expert: 4 does not divide the 2 ranks of a pipeline "
       "stage (data x tensor x context); use expert 2"}};
  for (const auto& [ranks, sets, models, said] : cases) {
    const absl::Status status = TinyRuns().Run(
        {.ranks = ranks, .sets = sets, .out = "run", .models = models});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(said));
  }
}

TEST(ExpertRowsTest, HaveSomeWithoutCutSums) {
  const std::vector<Configuration> rows = Drawn();
  EXPECT_GT(std::count_if(rows.begin(), rows.end(), CutsNoSum), 0);
}

}  // namespace
}  // namespace delink::testing::experts_run_test
