// Run folders as they are found: whole, at work, cut short, odd.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "framework/base/file.h"
#include "parallel/watch/heartbeat.h"
#include "recipes/record/run_folder.h"
#include "tests/testing/temp_dir.h"
#include "tools/report/report_data.h"
#include "tools/report/run_record.h"

namespace delink::report::reader_test {
namespace {

using ::delink::testing::TempDir;
using ::testing::Contains;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;
using Json = nlohmann::ordered_json;

constexpr char kRecipe[] = R"([model]
kind = "gpt"

[optimizer]
lr = 0.002
betas = [0.9, 0.95]

[schedule]
steps = 4

[[stage]]
name = "pseudo"
until.fraction = 0.5

[[stage]]
name = "real"

[run]
precision = "fp32"
)";

std::string Line(const Json& row) { return row.dump() + "\n"; }

Json Bytes(int64_t weights) {
  return {{"weights", weights},
          {"gradients", weights},
          {"state", 2 * weights},
          {"activations", 100},
          {"copies", 7},
          {"records", 3},
          {"total", 4 * weights + 110}};
}

Json Start(int step, const char* stage) {
  return {{"event", "start"},
          {"step", step},
          {"tokens", 64 * step},
          {"stage", stage},
          {"time", "2026-03-01T09:30:00Z"},
          {"version", "0.1.0"},
          {"processor", "A Processor"},
          {"cores", 2},
          {"ranks", 2},
          {"threads", 1},
          {"peak_flops", 1e9},
          {"flops_per_token", 1000},
          {"unique_parameters", 10},
          {"virtual_parameters", 40},
          {"bytes", Bytes(10)},
          {"seconds", 0.5 * step}};
}

Json Step(int step, const char* stage) {
  return {{"step", step},
          {"tokens", 64 * step},
          {"stage", stage},
          {"loss", 8.0 - step},
          {"lr", 0.001 * step},
          {"grad_norm", 1.0 + step},
          {"seconds", 0.5 * step},
          {"tokens_per_s", 128.0},
          {"peak_memory", 1000 * step}};
}

Json Switch(int step) {
  return {{"event", "delink"},
          {"step", step},
          {"from", "pseudo"},
          {"to", "real"},
          {"why", "where it was planned"},
          {"loss_before", 5.5},
          {"loss_after", 5.5},
          {"unique_parameters", 40},
          {"virtual_parameters", 40},
          {"unique_parameters_before", 10},
          {"flops_per_token", 2000},
          {"bytes_before", Bytes(10)},
          {"bytes_after", Bytes(40)},
          {"seconds", 1.25}};
}

// A run of four steps that switches after the second.
std::string WholeMetrics() {
  Json probe = {{"event", "agreement"},
                {"step", 1},
                {"tokens", 64},
                {"stage", "pseudo"},
                {"agreement", 3.6},
                {"rho", 0.9},
                {"rho_of", {{"attention", 0.8}, {"mlp", 0.95}}},
                {"seconds", 0.6}};
  Json timed = {{"event", "timed"},
                {"step", 1},
                {"tokens", 64},
                {"stage", "pseudo"},
                {"planned_step_seconds", 0.25},
                {"step_seconds", 0.5},
                {"seconds", 0.5}};
  Json with_norms = Step(2, "pseudo");
  with_norms["norms"] = {{"layers", {"embed", "blocks/0..3"}},
                         {"gradient", {0.5, nullptr}},
                         {"weight", {3.0, 4.0}}};
  Json validation = {{"step", 4},
                     {"tokens", 256},
                     {"stage", "real"},
                     {"validation_loss", 4.25},
                     {"validation_loss_of", {{"web", 4.5}, {"code", 4.0}}},
                     {"seconds", 2.5}};
  Json last = Step(4, "real");
  last["sources"] = {
      {"web", {{"samples", 6}, {"tokens", 192}, {"epochs", 0.5}}},
      {"code", {{"samples", 2}, {"tokens", 64}, {"epochs", 1.5}}}};
  return Line(Start(0, "pseudo")) + Line(Step(1, "pseudo")) + Line(timed) +
         Line(probe) + Line(with_norms) + Line(Switch(2)) +
         Line(Step(3, "real")) + Line(last) + Line(validation);
}

class Reader : public ::testing::Test {
 protected:
  std::string Folder(const std::string& name = "run") { return dir_ / name; }
  void Write(const std::string& metrics, const std::string& recipe = kRecipe) {
    ASSERT_TRUE(MakeDirectories(Folder()).ok());
    ASSERT_TRUE(WriteFile(RunFolder::Metrics(Folder()), metrics).ok());
    ASSERT_TRUE(WriteFile(RunFolder::Recipe(Folder()), recipe).ok());
  }
  RunRecord Read() {
    absl::StatusOr<RunRecord> run = ReadRun(Folder());
    EXPECT_TRUE(run.ok()) << run.status();
    return run.ok() ? *std::move(run) : RunRecord();
  }

  TempDir dir_;
};

Json WithRouting(int step, const std::vector<std::vector<double>>& choices) {
  Json row = Step(step, "real");
  row["routing"] = {{"layers", {"blocks/1", "blocks/2"}},
                    {"load", {{0, 0.5, 1, 1.5, 2}, {1, 1, 1, 1, 1}}},
                    {"max_violation", {1.0, 0.0}},
                    {"dropped", {0.25, 0.0}},
                    {"entropy", {1.5, nullptr}},
                    {"z", {3.0, 4.0}},
                    {"aux_loss", {0.5, 0.75}}};
  if (!choices.empty()) row["routing"]["choices"] = choices;
  return row;
}

TEST_F(Reader, RoutersAreShownByLayer) {
  Write(Line(Start(0, "real")) + Line(WithRouting(1, {{0, 8}, {4, 4}})) +
        Line(WithRouting(2, {{6, 2}, {0, 0}})));
  const Json shown = ToJson(Read())["routing"];
  ASSERT_EQ(shown.size(), 1u);
  EXPECT_EQ(shown[0]["layers"], Json({"blocks/1", "blocks/2"}));
  EXPECT_EQ(shown[0]["step"], Json({1, 2}));
  EXPECT_EQ(shown[0]["max_violation"], Json({{1, 1}, {0, 0}}));
  EXPECT_EQ(shown[0]["upper_quartile"], Json({{1.5, 1.5}, {1, 1}}));
  EXPECT_EQ(shown[0]["entropy"], Json({{1.5, 1.5}, {nullptr, nullptr}}));
  EXPECT_EQ(shown[0]["dropped"], Json({{0.25, 0.25}, {0, 0}}));
  const Json maps = shown[0]["maps"];
  ASSERT_EQ(maps.size(), 2u);
  EXPECT_EQ(maps[0], Json({{"step", 1}, {"load", {{0, 2}, {1, 1}}}}));
  EXPECT_EQ(maps[1],
            Json({{"step", 2}, {"load", {{1.5, 0.5}, {nullptr, nullptr}}}}));
}

TEST_F(Reader, ManyExpertsHaveNoMapAndDenseModelsNoRouters) {
  Json early = WithRouting(1, {});
  early["routing"].erase("max_violation");
  Write(Line(Start(0, "real")) + Line(early));
  const Json shown = ToJson(Read())["routing"];
  EXPECT_EQ(shown[0]["maps"], Json::array());
  EXPECT_EQ(shown[0]["max_violation"], Json({{1}, {0}}));
  Write(WholeMetrics());
  EXPECT_EQ(ToJson(Read())["routing"], Json::array());
}

// Of a long run, steps at equal distances and the last.
TEST_F(Reader, MapsOfALongRunAreThinned) {
  RoutingRecord record;
  for (int step = 1; step <= 22; ++step) {
    record.AddMap({.step = 1.0 * step, .load = {{1, 1}}}, 16);
  }
  std::vector<double> steps;
  for (const LoadMap& map : record.maps) steps.push_back(map.step);
  EXPECT_THAT(steps, ElementsAre(1, 5, 9, 13, 17, 21, 22));
}

TEST_F(Reader, SkippedStepsAreCounted) {
  Json skipped = Step(2, "real");
  skipped["skipped"] = true;
  skipped["loss"] = nullptr;
  Write(Line(Start(0, "real")) + Line(Step(1, "real")) + Line(skipped) +
        Line(Step(3, "real")));
  const RunRecord run = Read();
  EXPECT_EQ(run.skipped_steps, 1);
  EXPECT_EQ(ToJson(run)["summary"]["skipped_steps"], 1);
  EXPECT_EQ(ToJson(run)["summary"]["loss"], 6);  // of 7 and 5
}

TEST_F(Reader, ThePeakIsTheBestSinceTheStart) {
  Json again = Step(2, "pseudo");
  again["peak_flops"] = 4e9;
  Write(Line(Start(0, "pseudo")) + Line(Step(1, "pseudo")) + Line(again) +
        Line(Start(2, "pseudo")) + Line(Step(3, "pseudo")));
  const RunRecord run = Read();
  EXPECT_THAT(run.steps.Values("peak_percent"),
              ElementsAre(DoubleNear(0.0032, 1e-12), DoubleNear(0.0032, 1e-12),
                          DoubleNear(0.0128, 1e-12)));
  EXPECT_EQ(run.starts[0].peak_flops, 4e9);
  EXPECT_EQ(run.starts[1].peak_flops, 1e9);
}

TEST_F(Reader, MoreThanThePeakIsNoted) {
  Json slow = Start(0, "pseudo");
  slow["peak_flops"] = 31e3;  // of 128 tokens/s with 1000 FLOP each
  Write(Line(slow) + Line(Step(1, "pseudo")));
  EXPECT_THAT(Read().notes,
              Contains(HasSubstr("1 step(s) exceeded the matmul peak, "
                                 "reaching up to 413% of it")));
}

TEST_F(Reader, TheCommandCanBeGivenToAShell) {
  Json start = Start(0, "pseudo");
  start["command"] = {
      "delink",          "train", "it's.toml", "--set", "stage.0.share=\"all\"",
      "run.log_every=5", ""};
  start["commit"] = "0123456789ab";
  Write(Line(start) + Line(Step(1, "pseudo")));
  const Json shown = ToJson(Read())["starts"][0];
  EXPECT_EQ(shown["command"],
            "delink train 'it'\\''s.toml' --set 'stage.0.share=\"all\"' "
            "run.log_every=5 ''");
  EXPECT_EQ(shown["commit"], "0123456789ab");
  EXPECT_EQ(ToJson(Read())["starts"][0]["version"], "0.1.0");
}

TEST_F(Reader, AWholeRunIsReadWhole) {
  Write(WholeMetrics());
  const RunRecord run = Read();
  EXPECT_EQ(run.state, RunState::kFinished);
  EXPECT_THAT(run.notes, IsEmpty());
  EXPECT_EQ(run.planned_steps, 4);
  EXPECT_THAT(run.steps.Values("step"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(run.steps.Values("loss"), ElementsAre(7, 6, 5, 4));
  // 64 tokens a step, 1000 FLOP each, then 2000.
  EXPECT_THAT(run.steps.Values("flops"),
              ElementsAre(64e3, 128e3, 256e3, 384e3));
  EXPECT_THAT(
      run.steps.Values("peak_percent"),
      ElementsAre(DoubleNear(0.0128, 1e-12), DoubleNear(0.0128, 1e-12),
                  DoubleNear(0.0256, 1e-12), DoubleNear(0.0256, 1e-12)));
  EXPECT_EQ(run.peak_memory, 4000);
  EXPECT_THAT(run.validations.Values("loss"), ElementsAre(4.25));
  EXPECT_THAT(run.validations.Values("flops"), ElementsAre(384e3));
  EXPECT_THAT(run.validations.Values("loss code"), ElementsAre(4.0));
  ASSERT_THAT(run.sources, SizeIs(2));
  EXPECT_EQ(run.sources[0].name, "code");
  EXPECT_EQ(run.sources[0].tokens, 64);
  EXPECT_EQ(run.sources[1].epochs, 0.5);
  EXPECT_EQ(ToJson(run)["sources"][1]["name"], "web");
  EXPECT_EQ(ToJson(run)["validations"]["loss web"][0], 4.5);
  EXPECT_THAT(run.agreement.Values("rho mlp"), ElementsAre(0.95));

  ASSERT_THAT(run.stages, SizeIs(2));
  EXPECT_EQ(run.stages[0].name, "pseudo");
  EXPECT_EQ(run.stages[0].begin.step, 0);
  EXPECT_EQ(run.stages[0].unique_parameters, 10);
  EXPECT_EQ(run.stages[0].bytes.total, 150);
  EXPECT_EQ(run.stages[0].planned_step, 0.25);
  EXPECT_EQ(run.stages[0].measured_step, 0.5);
  EXPECT_EQ(ToJson(run)["stages"][0]["planned_step"], 0.25);
  EXPECT_EQ(ToJson(run)["stages"][0]["measured_step"], 0.5);
  EXPECT_EQ(run.stages[1].name, "real");
  EXPECT_EQ(run.stages[1].begin.step, 2);
  EXPECT_EQ(run.stages[1].begin.tokens, 128);
  EXPECT_EQ(run.stages[1].begin.flops, 128e3);
  EXPECT_EQ(run.stages[1].begin.seconds, 1.25);
  EXPECT_EQ(run.stages[1].unique_parameters, 40);
  EXPECT_EQ(run.stages[1].bytes.weights, 40);

  ASSERT_THAT(run.norms, SizeIs(1));
  EXPECT_THAT(run.norms[0].layers, ElementsAre("embed", "blocks/0..3"));
  EXPECT_EQ(run.norms[0].gradient[0][0], 0.5);
  EXPECT_TRUE(std::isnan(run.norms[0].gradient[0][1]));
  EXPECT_THAT(run.norms[0].weight[0], ElementsAre(3, 4));

  ASSERT_THAT(run.starts, SizeIs(1));
  EXPECT_EQ(run.starts[0].processor, "A Processor");
  EXPECT_THAT(run.recipe, Contains(Pair("stage[0].until.fraction", "0.5")));
  EXPECT_THAT(run.recipe, Contains(Pair("optimizer.betas", "[0.9, 0.95]")));
}

// The rows that were written before there were starts.
TEST_F(Reader, WithoutAStartFlopsAreNotKnownAndTheRestIs) {
  Json change = Switch(2);
  change.erase("flops_per_token");
  Write(Line(Step(1, "pseudo")) + Line(Step(2, "pseudo")) + Line(change) +
        Line(Step(3, "real")) + Line(Step(4, "real")));
  const RunRecord run = Read();
  EXPECT_EQ(run.state, RunState::kFinished);
  ASSERT_THAT(run.stages, SizeIs(2));
  EXPECT_EQ(run.stages[0].unique_parameters, 10);
  EXPECT_EQ(run.stages[0].bytes.weights, 10);
  for (const double flops : run.steps.Values("flops")) {
    EXPECT_TRUE(std::isnan(flops));
  }
  const nlohmann::ordered_json json = ToJson(run);
  EXPECT_EQ(json["steps"]["flops"], Json({nullptr, nullptr, nullptr, nullptr}));
  EXPECT_EQ(json["steps"]["loss"], Json({7.0, 6.0, 5.0, 4.0}));
}

Json Counted(Json row, double flops) {
  row["flops"] = flops;
  return row;
}

// The stage before took 100 FLOP a token; the one that is told of takes 1000.
TEST_F(Reader, CountedFlopsHaveWhatWasBefore) {
  Json probe = {{"event", "agreement"}, {"step", 4}, {"rho", 0.5}};
  Write(Line(Counted(Start(2, "real"), 12.8e3)) +
        Line(Counted(Step(3, "real"), 76.8e3)) +
        Line(Counted(Step(4, "real"), 140.8e3)) + Line(probe));
  const RunRecord run = Read();
  EXPECT_EQ(run.stages[0].begin.flops, 12.8e3);
  EXPECT_EQ(run.starts[0].at.flops, 12.8e3);
  EXPECT_THAT(run.steps.Values("flops"), ElementsAre(76.8e3, 140.8e3));
  EXPECT_THAT(run.agreement.Values("flops"), ElementsAre(140.8e3));
  EXPECT_EQ(ToJson(run)["summary"]["flops"], 140.8e3);
}

TEST_F(Reader, AStageSaysHowManyBlocksItVisits) {
  Json start = Start(0, "pseudo"), change = Switch(2);
  start["depth"] = 1;
  change["depth_before"] = 1;
  change["depth"] = 4;
  Write(Line(start) + Line(Step(1, "pseudo")) + Line(Step(2, "pseudo")));
  EXPECT_EQ(ToJson(Read())["stages"][0]["depth"], 1);
  Write(Line(Step(1, "pseudo")) + Line(Step(2, "pseudo")) + Line(change));
  const Json stages = ToJson(Read())["stages"];
  EXPECT_EQ(stages[0]["depth"], 1);
  EXPECT_EQ(stages[1]["depth"], 4);
}

// A run that goes on from a checkpoint in another folder, in its last stage.
// Early builds did not count FLOPs.
TEST_F(Reader, ARunMayBeginInTheMiddle) {
  Write(Line(Start(2, "real")) + Line(Step(3, "real")) + Line(Step(4, "real")));
  const RunRecord run = Read();
  ASSERT_THAT(run.stages, SizeIs(1));
  EXPECT_EQ(run.stages[0].name, "real");
  EXPECT_EQ(run.stages[0].begin.step, 2);
  EXPECT_THAT(run.steps.Values("flops"), ElementsAre(192e3, 256e3));
}

TEST_F(Reader, AResumeIsASecondStart) {
  Write(Line(Start(0, "pseudo")) + Line(Step(1, "pseudo")) +
        Line(Start(1, "pseudo")) + Line(Step(2, "pseudo")));
  const RunRecord run = Read();
  EXPECT_THAT(run.starts, SizeIs(2));
  EXPECT_THAT(run.stages, SizeIs(1));
  EXPECT_THAT(run.steps.Values("flops"), ElementsAre(64e3, 128e3));
}

TEST_F(Reader, ATornLastLineIsLeftOutAndTold) {
  const std::string whole = WholeMetrics();
  Write(whole.substr(0, whole.size() - 20));
  const RunRecord run = Read();
  EXPECT_THAT(run.steps.Values("step"), SizeIs(4));
  EXPECT_THAT(run.validations.rows(), 0u);
  EXPECT_THAT(run.notes,
              ElementsAre(HasSubstr("line 9, the last, is incomplete")));
}

TEST_F(Reader, ALineThatLacksOnlyItsEndOfLineCounts) {
  const std::string whole = WholeMetrics();
  Write(whole.substr(0, whole.size() - 1));
  const RunRecord run = Read();
  EXPECT_THAT(run.notes, IsEmpty());
  EXPECT_THAT(run.validations.rows(), 1u);
}

// Whatever a line holds, reading goes on.
TEST_F(Reader, StrangeLinesAreLeftOutAndCounted) {
  Write(Line(Step(1, "pseudo")) + "[1, 2]\n" + "\x01\xff\xfe{\n" +
        "{\"step\": \"two\"}\n" + "{\"step\": 2, \"loss\": \"low\"}\n" +
        "{\"event\": \"agreement\", \"step\": 2, \"rho_of\": [1]}\n" +
        "{\"event\": \"delink\", \"step\": 2, \"bytes_after\": 7}\n" +
        "{\"event\": \"of a later version\", \"step\": 2}\n" +
        "{\"step\": 3, \"loss\": 1, \"norms\": {\"layers\": [1]}, "
        "\"sources\": {\"a\": 1, \"b\": {}}}\n" +
        "{\"step\": 4, \"loss\": 1, \"norms\": {\"layers\": [\"a\"]}}\n" +
        Line(Step(1, "pseudo")));
  const RunRecord run = Read();
  EXPECT_THAT(run.steps.Values("step"), ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(std::isnan(run.steps.Values("loss")[1]));
  EXPECT_THAT(
      run.notes,
      ElementsAre(HasSubstr("3 line(s) are not rows of metrics and were "
                            "skipped; the first is line 2"),
                  HasSubstr("1 row(s) repeat steps of earlier rows")));
  EXPECT_FALSE(ToJson(run).dump().empty());
}

TEST_F(Reader, AnEmptyFolderIsARunOfWhichNothingIsKnown) {
  ASSERT_TRUE(MakeDirectories(Folder()).ok());
  const RunRecord run = Read();
  EXPECT_EQ(run.state, RunState::kEmpty);
  EXPECT_THAT(run.notes, ElementsAre("the folder is empty"));
  EXPECT_FALSE(ToJson(run).dump().empty());
}

TEST_F(Reader, AFolderOfOtherThingsIsRefused) {
  ASSERT_TRUE(MakeDirectories(Folder()).ok());
  ASSERT_TRUE(WriteFile(Folder() + "/letter.txt", "Dear").ok());
  const absl::StatusOr<RunRecord> run = ReadRun(Folder());
  ASSERT_EQ(run.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(run.status().message()),
              HasSubstr(Folder() + ": is not a run"));
}

TEST_F(Reader, WhatIsMissingIsTold) {
  ASSERT_TRUE(MakeDirectories(RunFolder::Checkpoints(Folder())).ok());
  const RunRecord run = Read();
  EXPECT_THAT(run.notes, ElementsAre(HasSubstr("no recipe.toml"),
                                     HasSubstr("no metrics.jsonl")));
  EXPECT_EQ(run.state, RunState::kEmpty);
}

TEST_F(Reader, ARecipeThatIsNoTomlIsTold) {
  Write(WholeMetrics(), "[model\n");
  const RunRecord run = Read();
  EXPECT_THAT(run.notes, Contains(HasSubstr("recipe.toml:1")));
  EXPECT_THAT(run.recipe, IsEmpty());
  EXPECT_THAT(run.steps.Values("step"), SizeIs(4));
}

TEST_F(Reader, ARunThatEndedEarlySaysSo) {
  Write(Line(Step(1, "pseudo")));
  EXPECT_EQ(Read().state, RunState::kStopped);
  EXPECT_THAT(Read().notes, ElementsAre("ended after step 1 of 4"));
}

TEST_F(Reader, AnEarlyEndIsNoneOnceTheRunWentOn) {
  const std::string end = Line(
      {{"event", "early_end"}, {"step", 1}, {"why", "nothing was better"}});
  Write(Line(Step(1, "pseudo")) + end);
  EXPECT_EQ(Read().ended_early, "nothing was better");
  Write(Line(Step(1, "pseudo")) + end + Line(Step(2, "pseudo")));
  EXPECT_EQ(Read().ended_early, "");
  EXPECT_THAT(Read().notes, ElementsAre("ended after step 2 of 4"));
}

TEST_F(Reader, ARunAtWorkIsToldFromOneThatDied) {
  Write(Line(Step(1, "pseudo")));
  const std::string ranks = RunFolder::Ranks(Folder());
  ASSERT_TRUE(MakeDirectories(ranks).ok());
  {
    const auto alive = Heartbeat::Create(ranks, 0);
    ASSERT_TRUE(alive.ok()) << alive.status();
    EXPECT_EQ(Read().state, RunState::kRunning);
    EXPECT_THAT(Read().notes, Contains(HasSubstr("step 1 of 4")));
  }
  ASSERT_TRUE(MakeDirectories(ranks).ok());
  ASSERT_TRUE(WriteFile(ranks + "/rank-00000", "left behind").ok());
  EXPECT_EQ(Read().state, RunState::kDied);
  EXPECT_THAT(Read().notes, Contains(HasSubstr("died after step 1 of 4")));
}

TEST_F(Reader, ALongRunIsThinnedAndItsNumbersAreOfAllOfIt) {
  constexpr int kSteps = 40000;
  std::string metrics = Line(Start(0, "real"));
  for (int step = 1; step <= kSteps; ++step) {
    Json row = Step(step, "real");
    row["loss"] = step == 31234 ? 99.0 : 4.0 + (step % 2);
    metrics += Line(row);
  }
  Write(metrics);
  const nlohmann::ordered_json json = ToJson(Read());
  EXPECT_LT(json.dump().size(), 600000u);
  EXPECT_LE(json["steps"]["step"].size(), 3202u);
  EXPECT_THAT(json["steps"]["loss"].get<std::vector<double>>(), Contains(99.0));
  EXPECT_EQ(json["steps"]["loss_mean"].size(), json["steps"]["step"].size());
  EXPECT_EQ(json["summary"]["loss"], 4.5);
  EXPECT_EQ(json["summary"]["steps"], kSteps);
  EXPECT_EQ(json["summary"]["tokens_per_s"], 128.0);
}

std::vector<std::string> NamesOf(const std::vector<std::string>& folders) {
  std::vector<RunRecord> runs;
  for (const std::string& folder : folders) {
    runs.emplace_back();
    runs.back().folder = folder;
  }
  NameRuns(&runs);
  std::vector<std::string> names;
  for (const RunRecord& run : runs) names.push_back(run.name);
  return names;
}

TEST(NameRuns, AsShortAsTellsThemApart) {
  EXPECT_THAT(NamesOf({"runs/a", "runs/b/"}), ElementsAre("a", "b"));
  EXPECT_THAT(NamesOf({"/x/one/p2r", "/x/two/p2r", "/x/q"}),
              ElementsAre("one/p2r", "two/p2r", "q"));
  EXPECT_THAT(NamesOf({"/p2r", "/x/p2r"}), ElementsAre("p2r", "x/p2r"));
  EXPECT_THAT(NamesOf({"/"}), ElementsAre("/"));
}

RunRecord WithRecipe(
    const std::vector<std::pair<std::string, std::string>>& recipe) {
  RunRecord run;
  run.recipe = recipe;
  return run;
}

TEST(RecipeDifferences, AreTheKeysThatNotAllHaveAlike) {
  const auto differences = RecipeDifferences(
      {WithRecipe({{"a", "1"}, {"b", "2"}, {"c", "3"}}),
       WithRecipe({{"a", "1"}, {"b", "5"}, {"d", "4"}}), WithRecipe({})});
  EXPECT_EQ(differences, Json::parse(R"([
      {"key": "b", "values": ["2", "5", null]},
      {"key": "c", "values": ["3", null, null]},
      {"key": "d", "values": [null, "4", null]}])"));
}

}  // namespace
}  // namespace delink::report::reader_test
