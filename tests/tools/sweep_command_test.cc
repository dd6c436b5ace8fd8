// delink sweep: a grid of real runs, its table, and going on with it.
#include <algorithm>
#include <filesystem>
#include <map>

#include "framework/base/file.h"
#include "tests/testing/source_path.h"
#include "tests/tools/program_fixture.h"

namespace delink::testing::sweep_command_test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Leaves out the runs that fail; and those of the other learning rate.
constexpr char kHere[] = "[[skip]]\nwhere = { corpus = \"nowhere\" }\n";
constexpr char kTwoSeeds[] =
    "[[skip]]\nwhere = { corpus = \"nowhere\" }\n"
    "[[skip]]\nwhere = { lr = 2e-3 }\n";

class Sweeps : public Program {
 protected:
  // Six runs of a few steps; those with the corpus that is not there fail.
  std::string Spec(const std::string& name, const std::string& more = "") {
    WriteText(Path(name + ".toml"),
              "recipe = \"" + SourcePath("recipes/tiny.toml") +
                  "\"\n"
                  "set = [\"schedule.steps=6\", \"stage.0.until.steps=3\", "
                  "\"run.validate_every=2\"]\n"
                  "seeds = [1, 2]\n"
                  "at_tokens = [1024]\n"
                  "[[axis]]\nkey = \"optimizer.lr\"\nvalues = [1e-3, 2e-3]\n"
                  "[[axis]]\nkey = \"data.train\"\nname = \"corpus\"\n"
                  "values = [\"" +
                  Path("corpus/train") + "\", \"" + Path("nowhere") +
                  "\"]\nlabels = [\"there\", \"nowhere\"]\n"
                  "[[skip]]\nwhere = { corpus = \"nowhere\", lr = 1e-3 }\n" +
                  more);
    return Path(name + ".toml");
  }
  json Table(const std::string& out) {
    return json::parse(*ReadFile(Path(out + "/sweep.json")), nullptr, false);
  }
  // What a row of the table has measured, by name.
  static std::map<std::string, json> Measures(const json& table,
                                              const json& row) {
    std::map<std::string, json> values;
    for (size_t i = 0; i < table["measures"].size(); ++i) {
      values[table["measures"][i]] = row["measures"][i];
    }
    return values;
  }
};

TEST_F(Sweeps, AFailingRunStopsNoOther) {
  const Words words = {"sweep",      Spec("grid"), "--out",
                       Path("grid"), "--jobs",     "2"};
  const Outcome outcome = RunDelink(words);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("6 runs, 0 of them finished"),
                                 HasSubstr("4 runs finished, 2 failed")));
  const json table = Table("grid");
  ASSERT_EQ(table["rows"].size(), 6u);
  EXPECT_EQ(table["settings"], json::parse("[\"lr\",\"corpus\",\"seed\"]"));
  for (const json& row : table["rows"]) {
    const bool there = row["settings"][1] == "there";
    EXPECT_EQ(row["status"], there ? "finished" : "failed") << row;
    EXPECT_EQ(row["measures"][0].is_null(), !there);
    if (there) {
      EXPECT_EQ(row["measures"][0], 6);
      EXPECT_EQ(row["error"], "");
    } else {
      EXPECT_THAT(row["error"].get<std::string>(),
                  AllOf(HasSubstr("error: "), HasSubstr("nowhere")));
    }
  }
  // What a run of its own finds.
  const Outcome alone = Succeed(TrainWords(
      "alone", {"--set", "schedule.steps=6", "--set", "stage.0.until.steps=3",
                "--set", "run.validate_every=2", "--set", "optimizer.lr=2e-3",
                "--set", "run.seed=2"}));
  double last = 0, at_1024 = 0;
  for (const json& row : Rows(Path("alone/metrics.jsonl"))) {
    if (!row.contains("validation_loss")) continue;
    last = row["validation_loss"];
    if (row["tokens"] <= 1024) at_1024 = last;
  }
  const std::vector<std::string> lines = Lines(Path("grid/sweep.csv"));
  ASSERT_EQ(lines.size(), 7u);
  EXPECT_THAT(lines[0], AllOf(HasSubstr("name,lr,corpus,seed,status,steps,"),
                              HasSubstr(",validation_loss_at_1024_tokens,")));
  bool found = false;
  for (const json& row : table["rows"]) {
    if (row["name"] != "lr=0.002_corpus=there_seed=2") continue;
    found = true;
    std::map<std::string, json> values = Measures(table, row);
    EXPECT_NEAR(values["validation_loss"].get<double>(), last, 1e-6);
    EXPECT_NEAR(values["validation_loss_at_1024_tokens"].get<double>(), at_1024,
                1e-6);
    EXPECT_GT(values["peak_memory"], 0);
  }
  EXPECT_TRUE(found);

  // Again: what is finished is left alone, what failed is tried again.
  const auto written = std::filesystem::last_write_time(
      Path("grid/runs/lr=0.001_corpus=there_seed=1/metrics.jsonl"));
  const Outcome again = RunDelink(words);
  EXPECT_EQ(again.code, 1);
  EXPECT_THAT(again.err, AllOf(HasSubstr("6 runs, 4 of them finished"),
                               Not(HasSubstr("corpus=there"))));
  EXPECT_EQ(std::filesystem::last_write_time(
                Path("grid/runs/lr=0.001_corpus=there_seed=1/metrics.jsonl")),
            written);
}

// The last validation of a run that took no more than `flops`.
double LossAt(const std::vector<json>& rows, double flops) {
  double loss = 0;
  for (const json& row : rows) {
    if (row.contains("validation_loss") && row["flops"] <= flops) {
      loss = row["validation_loss"];
    }
  }
  return loss;
}

TEST_F(Sweeps, GrowthComparesAtEqualFlops) {
  constexpr double kFlops = 2.5e8;  // less than any run takes in all
  WriteText(Path("growth.toml"),
            "recipe = \"" + SourcePath("recipes/tiny.toml") +
                "\"\n"
                "set = [\"schedule.steps=6\", \"stage.0.until.steps=3\", "
                "\"run.validate_every=1\", \"data.train=" +
                Path("corpus/train") +
                "\", \"stage.0.share=none\"]\n"
                "at_flops = [2.5e8]\n"
                "[[axis]]\nkey = \"stage.0.depth\"\nvalues = [1, 2]\n"
                "[[axis]]\nkey = \"stage.1.grow\"\n"
                "values = [\"copy\", \"zero\"]\n");
  Succeed(
      {"sweep", Path("growth.toml"), "--out", Path("growth"), "--jobs", "2"});
  EXPECT_THAT(Lines(Path("growth/sweep.csv")).at(0),
              HasSubstr("name,depth,grow,status,steps,tokens,seconds,flops,"));
  const json table = Table("growth");
  std::map<std::string, double> flops;
  for (const json& row : table["rows"]) {
    std::map<std::string, json> values = Measures(table, row);
    const std::string name = row["name"];
    const std::vector<json> rows =
        Rows(Path("growth/runs/" + name + "/metrics.jsonl"));
    flops[name] = values["flops"];
    EXPECT_EQ(values["flops"], rows.back()["flops"]) << name;
    EXPECT_GT(values["flops"], kFlops) << name;
    EXPECT_GT(LossAt(rows, kFlops), 0) << name;
    EXPECT_EQ(values["validation_loss_at_2.5e8_flops"], LossAt(rows, kFlops))
        << name;
    for (const json& event : rows) {
      if (event.value("event", "") != "delink") continue;
      EXPECT_EQ(event["depth_before"].dump(), row["settings"][0]) << name;
      EXPECT_EQ(event["loss_before"] == event["loss_after"],
                row["settings"][1] == "zero")
          << name;
    }
  }
  EXPECT_EQ(flops.size(), 4U);
  EXPECT_EQ(flops["depth=1_grow=copy"], flops["depth=1_grow=zero"]);
  EXPECT_LT(flops["depth=1_grow=copy"], flops["depth=2_grow=copy"]);
}

TEST_F(Sweeps, ACutRunGoesOn) {
  const std::string spec = Spec("cut", kHere);
  const std::string run = Path("cut/runs/lr=0.001_corpus=there_seed=1");
  const Outcome cut =
      Succeed({"train", SourcePath("recipes/tiny.toml"), "--set",
               "schedule.steps=6", "--set", "stage.0.until.steps=3", "--set",
               "run.validate_every=2", "--set", "optimizer.lr=0.001", "--set",
               "data.train=" + Path("corpus/train"), "--set", "run.seed=1",
               "--out", run, "--until-step", "4"});
  const Outcome outcome = Succeed({"sweep", spec, "--out", Path("cut")});
  EXPECT_THAT(outcome.err, HasSubstr("lr=0.001_corpus=there_seed=1: goes on"));
  int starts = 0, last = 0;
  for (const json& row : Rows(run + "/metrics.jsonl")) {
    starts += row.value("event", "") == "start";
    last = row["step"];
  }
  EXPECT_EQ(starts, 2);
  EXPECT_EQ(last, 6);
}

TEST_F(Sweeps, DryRunPrintsCommandsAndDoesNothing) {
  const std::string spec = Spec("dry",
                                "[[axis]]\nkey = \"stage.0.share\"\n"
                                "values = [\"all\"]\n");
  const Outcome outcome =
      Succeed({"sweep", spec, "--out", Path("dry"), "--dry-run"});
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 6);
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr(" train "), HasSubstr("--set optimizer.lr=0.001"),
                    HasSubstr("--set 'stage.0.share=\"all\"'"),
                    HasSubstr("--resume\n")));
  EXPECT_FALSE(PathExists(Path("dry")));
}

TEST_F(Sweeps, WhatIsWrongIsToldBeforeAnythingIsWritten) {
  WriteText(Path("bad.toml"), "recipe = \"" + SourcePath("recipes/tiny.toml") +
                                  "\"\n[[axis]]\nkey = \"model.heads\"\n"
                                  "values = [4, 5]\n");
  const Outcome recipe =
      RunDelink({"sweep", Path("bad.toml"), "--out", Path("bad"), "--set",
                 "data.train=" + Path("corpus/train")});
  EXPECT_EQ(recipe.code, 2);
  EXPECT_THAT(recipe.err,
              AllOf(HasSubstr("the run with heads = 5 has a wrong recipe"),
                    HasSubstr("model")));
  EXPECT_FALSE(PathExists(Path("bad")));
  WriteText(Path("toml.toml"), "recipe = [");
  EXPECT_EQ(RunDelink({"sweep", Path("toml.toml"), "--out", Path("bad")}).code,
            2);
  EXPECT_FALSE(PathExists(Path("bad")));
}

TEST_F(Sweeps, ARunOfOtherSettingsIsNotTakenForThisOne) {
  const std::string spec = Spec("other", kTwoSeeds);
  WriteText(Path("tiny.toml"), *ReadFile(SourcePath("recipes/tiny.toml")));
  std::string text = *ReadFile(spec);
  text.replace(text.find(SourcePath("")), SourcePath("recipes/").size(), "");
  WriteText(spec, text);
  Succeed({"sweep", spec, "--out", Path("other")});
  ExpectRefused(
      {"sweep", spec, "--out", Path("other"), "--set", "data.batch=4"},
      "started with another recipe or other");
  // From another folder it is the same sweep.
  const auto here = std::filesystem::current_path();
  std::filesystem::current_path(Path("corpus"));
  const Outcome moved =
      RunDelink({"sweep", "../other.toml", "--out", "../other"});
  std::filesystem::current_path(here);
  EXPECT_EQ(moved.code, 0) << moved.err;
  // Early builds wrote the path as it was given.
  const std::string origin =
      Path("other/runs/lr=0.001_corpus=there_seed=1.toml");
  std::string early = *ReadFile(origin);
  early.replace(early.find(Path("")), Path("").size(), "");
  WriteText(origin, early);
  std::filesystem::current_path(Path(""));
  const Outcome kept = RunDelink({"sweep", "other.toml", "--out", "other"});
  std::filesystem::current_path(here);
  EXPECT_EQ(kept.code, 0) << kept.err;
}

TEST_F(Sweeps, RunsDoNotVanishFromTheTableWithoutAWord) {
  const std::string spec = Spec("gone", kTwoSeeds);
  const Words words = {"sweep", spec, "--out", Path("gone")};
  Succeed(words);
  const json before = Table("gone");
  // Another axis: another sweep.
  Spec("gone",
       std::string(kTwoSeeds) + "[[axis]]\nkey = \"run.keep\"\nvalues = [1]\n");
  const Outcome other = RunDelink(words);
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err,
              AllOf(HasSubstr("other axes (lr, corpus, seed)"),
                    HasSubstr("lr=0.001_corpus=there_seed=1 among them")));
  EXPECT_EQ(Table("gone"), before);
  // A seed less: told.
  Spec("gone", kTwoSeeds);
  std::string text = *ReadFile(spec);
  text.replace(text.find("[1, 2]"), 6, "[1]");
  WriteText(spec, text);
  const Outcome less = Succeed(words);
  EXPECT_THAT(less.err,
              AllOf(HasSubstr("1 earlier run(s) are no longer in"),
                    HasSubstr("table: lr=0.001_corpus=there_seed=2\n")));
  EXPECT_EQ(Table("gone")["rows"].size(), 1u);
}

TEST_F(Sweeps, RunsOfSeveralRanks) {
  if (!HaveMpirun()) GTEST_SKIP() << "a build without MPI";
  const std::string spec = Spec("ranks", kTwoSeeds);
  WriteText(spec, "ranks = 2\n" + *ReadFile(spec));
  Succeed({"sweep", spec, "--out", Path("ranks")});
  const std::vector<json> rows =
      Rows(Path("ranks/runs/lr=0.001_corpus=there_seed=1/metrics.jsonl"));
  EXPECT_EQ(rows.front()["ranks"], 2);
}

}  // namespace
}  // namespace delink::testing::sweep_command_test
