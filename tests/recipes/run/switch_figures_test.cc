// Figures of a stage: `plan`, the row of a run's start, those of its switches,
// its log and its report have the same, whatever the next stage has otherwise.
//
//   DELINK_FIGURES=200 DELINK_FIGURES_SEED=2 switch_figures_test
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/base/file.h"
#include "framework/base/log.h"
#include "recipes/plan/plan.h"
#include "recipes/record/stage_text.h"
#include "tests/recipes/run/run_table.h"
#include "tests/recipes/run/tiny_run.h"
#include "tests/testing/source_path.h"
#include "tools/report/run_record.h"

namespace delink::testing::switch_figures_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr uint64_t kRows = 20, kFullRows = 60;
constexpr int kStages = 2, kRanks = 4;

Axis OfStage(int stage, const std::string& name, std::vector<Value> values) {
  Axis axis{.name = absl::StrCat(name, stage), .change = Change::kRun};
  for (Value& value : values) {
    if (!value.words.empty()) {
      value.words = absl::StrCat("stage.", stage, ".", value.words);
    }
    axis.values.push_back(std::move(value));
  }
  return axis;
}

// What a stage does not say it has from the one before.
std::string Layout(const std::string& words) {
  std::string all = words;
  for (const char* axis : {"tensor", "context", "pipeline"}) {
    if (!absl::StrContains(words, axis)) absl::StrAppend(&all, ",", axis, "=1");
  }
  if (!absl::StrContains(words, "zero")) absl::StrAppend(&all, ",zero=0");
  return absl::StrCat("parallel={", all, "}");
}

const std::vector<Axis> kAxes = [] {
  std::vector<Axis> axes = {
      {"model", Change::kRun, {{"tiny"}, {"tiny_llama"}, {"tiny_moe"}}},
      {"depth",
       Change::kRun,
       {{"all"}, {"two", "stage.0.depth=2 stage.0.visit=even"}}},
      {"precision", Change::kRun, {{"fp32"}, {"bf16", "run.precision=bf16"}}}};
  for (int stage = 0; stage < kStages; ++stage) {
    axes.push_back(OfStage(stage, "layout",
                           {{"data", Layout("data=4")},
                            {"tensor", Layout("data=2,tensor=2")},
                            {"pipeline", Layout("data=2,pipeline=2")},
                            {"context", Layout("data=2,context=2")},
                            {"zero", Layout("data=4,zero=1")}}));
    axes.push_back(OfStage(stage, "recompute",
                           {{"norm", "recompute=norm+activation"},
                            {"none", "recompute=none"},
                            {"block", "recompute=block"}}));
    axes.push_back(OfStage(stage, "micro_batch",
                           {{"2", "micro_batch=2"}, {"1", "micro_batch=1"}}));
    axes.push_back(OfStage(stage, "home",
                           {{"device", "offload={state=\"device\"}"},
                            {"host", "offload={state=\"host\"}"}}));
  }
  return axes;
}();
const std::vector<Rule> kRules;

std::vector<std::string> Sets(const Configuration& c) {
  std::vector<std::string> sets = RunTable(kAxes, kRules, 0).Sets(c);
  for (const char* word :
       {"schedule.steps=2", "schedule.warmup=0", "stage.0.until={steps=1}",
        "run.checkpoint_every=0", "run.threads=1"}) {
    sets.push_back(word);
  }
  return sets;
}

struct Row {
  Configuration configuration;
  friend std::ostream& operator<<(std::ostream& out, const Row& row) {
    const Configuration& c = row.configuration;
    return out << TrainCommand(kRanks, c.at("model"), Sets(c));
  }
};

std::vector<Row> Rows() {
  std::vector<Row> rows;
  RunTable table(kAxes, kRules, FromEnvironment("DELINK_FIGURES_SEED", 1));
  for (const Configuration& c :
       table.Cover({}, RowCount("DELINK_FIGURES", kRows, kFullRows))) {
    rows.push_back({c});
  }
  return rows;
}

class SwitchFigures : public ::testing::TestWithParam<Row> {};

TEST_P(SwitchFigures, AreThoseOfThePlan) {
  const Configuration& c = GetParam().configuration;
  const TinyRuns runs(c.at("model"));
  SetLogLevel(LogLevel::kInfo);
  ASSERT_NO_FATAL_FAILURE(
      runs.Go({.ranks = kRanks, .sets = Sets(c), .out = "run"}));
  PlanOptions options{
      .recipe = SourcePath(absl::StrCat("recipes/", c.at("model"), ".toml")),
      .sets = Sets(c),
      .ranks = kRanks};
  options.sets.insert(options.sets.end(), runs.data.begin(), runs.data.end());
  const absl::StatusOr<RunPlan> plan = PlanRun(options, BuiltInModels());
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->stages.size(), kStages);
  const absl::StatusOr<report::RunRecord> record =
      report::ReadRun(runs.Folder("run"));
  ASSERT_TRUE(record.ok()) << record.status();
  ASSERT_EQ(record->stages.size(), kStages);

  const auto expect = [&](const json& row, const std::string& bytes,
                          const std::string& suffix, const StagePlan& stage) {
    SCOPED_TRACE(bytes);
    EXPECT_EQ(row.at(bytes), json(ToJson(stage.account)));
    EXPECT_EQ(row.at("flops_per_token" + suffix), stage.flops_per_token);
    EXPECT_EQ(row.at("unique_parameters" + suffix), stage.unique_parameters);
    EXPECT_EQ(row.at("depth" + suffix), stage.depth);
  };
  int rows = 0;
  for (const json& row : runs.Rows("run")) {
    const std::string event = row.value("event", "");
    if (event == "start") {
      expect(row, "bytes", "", plan->stages[0]);
      ++rows;
    } else if (event == "delink") {
      expect(row, "bytes_before", "_before", plan->stages[0]);
      expect(row, "bytes_after", "", plan->stages[1]);
      ++rows;
    }
  }
  EXPECT_EQ(rows, 2);
  std::vector<std::pair<std::string, MemoryAccount>> accounts;
  for (int i = 0; i < kStages; ++i) {
    const StagePlan& stage = plan->stages[i];
    const report::StageRecord& told = record->stages[i];
    EXPECT_EQ(told.bytes.total, json(ToJson(stage.account)).at("total"));
    EXPECT_EQ(told.depth, stage.depth);
    EXPECT_EQ(told.unique_parameters, stage.unique_parameters);
    accounts.emplace_back(stage.name, stage.account);
  }
  const absl::StatusOr<std::string> log =
      ReadFile(runs.Folder("run") + "/log.txt");
  ASSERT_TRUE(log.ok()) << log.status();
  for (const auto& some :
       {std::vector(accounts.begin(), accounts.begin() + 1), accounts}) {
    const std::string table = AccountTable("memory of a rank", some);
    for (const absl::string_view line :
         absl::StrSplit(table, '\n', absl::SkipEmpty())) {
      EXPECT_THAT(*log, HasSubstr(absl::StrCat(line, "\n")));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Drawn, SwitchFigures, ::testing::ValuesIn(Rows()),
                         [](const auto& info) {
                           return absl::StrCat(info.index);
                         });

}  // namespace
}  // namespace delink::testing::switch_figures_test
