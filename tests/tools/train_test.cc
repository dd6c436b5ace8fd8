// `delink train` from outside: what a run leaves, stopping and resuming, what
// is refused, several ranks, and a program of one's own.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/testing/source_path.h"
#include "tests/tools/program_fixture.h"

namespace delink::testing::train_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

namespace fs = std::filesystem;
using nlohmann::json;

using TrainProgram = Program;

TEST_F(TrainProgram, ARunFolderHoldsWhatIsPromised) {
  for (const char* name : {"recipe.toml", "metrics.jsonl", "log.txt"}) {
    EXPECT_TRUE(fs::is_regular_file(Path("straight/") + name)) << name;
  }
  for (const char* name : {"index.h5", "rank-00000.h5", "recipe.toml",
                           "tokenizer", "SHA256SUMS"}) {
    EXPECT_TRUE(fs::is_regular_file(Step("straight", kSteps) + "/" + name))
        << name;
  }
}

TEST_F(TrainProgram, TheBestPeakIsKept) {
  const char* const before = std::getenv("XDG_CACHE_HOME");
  const std::string restore = before == nullptr ? "" : before;
  setenv("XDG_CACHE_HOME", Path("cache").c_str(), /*overwrite=*/1);
  const auto peak = [](const std::string& out) {
    Succeed(TrainWords(out, {"--until-step", "1"}));
    return Rows(Path(out + "/metrics.jsonl")).front()["peak_flops"];
  };
  const std::string path = Path("cache/delink/matmul_peak.json");
  const json measured = peak("peak1");
  std::ifstream in(path);
  json kept = json::parse(in);
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept.front(), measured);
  kept.front() = 1e18;
  WriteText(path, kept.dump());
  EXPECT_EQ(peak("peak2"), 1e18);
  setenv("XDG_CACHE_HOME", restore.c_str(), /*overwrite=*/1);
}

TEST_F(TrainProgram, TheFolderMayHaveAnyName) {
  Succeed(TrainWords("no\xffutf-8", {"--until-step", "1"}));
  const json start = Rows(Path("no\xffutf-8/metrics.jsonl")).front();
  EXPECT_THAT(start["command"], Contains(Path("no\uFFFDutf-8")));
}

TEST_F(TrainProgram, MetricsHaveTheirFieldsAndReadBackBitForBit) {
  const std::string path = Path("straight/metrics.jsonl");
  int steps = 0, validations = 0, switches = 0, starts = 0;
  for (const json& row : Rows(path)) {
    if (row.value("event", "") == "start") {
      ++starts;
      EXPECT_EQ(row["step"], 0);
      EXPECT_EQ(row["ranks"], 1);
      EXPECT_GT(row["flops_per_token"], 0);
      EXPECT_GT(row["peak_flops"], 0);
      EXPECT_GT(row["bytes"]["weights"], 0);
      // "delink 0.1.0 (commit 58bc693d1f2e; MPI, oneDNN)"
      const auto& features = row["features"].get<std::vector<std::string>>();
      EXPECT_EQ(absl::StrCat("delink ", row["version"].get<std::string>(),
                             " (commit ", row["commit"].get<std::string>(),
                             features.empty() ? "" : "; ",
                             absl::StrJoin(features, ", "), ")\n"),
                RunDelink({"--version"}).out);
      ASSERT_GT(row["command"].size(), 3u);
      EXPECT_EQ(row["command"][1], "train");
    } else if (row.contains("event")) {
      ++switches;
      EXPECT_EQ(row["event"], "delink");
      EXPECT_GT(row["flops_per_token"], 0);
      EXPECT_EQ(row["step"], kSwitch);
      EXPECT_EQ(row["loss_before"].get<double>(),
                row["loss_after"].get<double>());
      EXPECT_EQ(row["virtual_parameters"], row["unique_parameters"]);
      EXPECT_GT(row["unique_parameters"], row["unique_parameters_before"]);
      EXPECT_GT(row["bytes_after"]["state"], row["bytes_before"]["state"]);
    } else if (row.contains("validation_loss")) {
      ++validations;
      EXPECT_TRUE(row.contains("step"));
    } else {
      ++steps;
      EXPECT_EQ(row["step"], steps);
      EXPECT_EQ(row["stage"], steps <= kSwitch ? "pseudo" : "real");
      for (const char* key : {"tokens", "flops", "loss", "lr", "grad_norm",
                              "seconds", "tokens_per_s"}) {
        EXPECT_TRUE(row[key].is_number()) << key;
      }
    }
  }
  EXPECT_EQ(steps, kSteps);
  EXPECT_EQ(validations, 2);
  EXPECT_EQ(switches, 1);
  EXPECT_EQ(starts, 1);
  // A number whose text is its shortest exact form comes out as it went in.
  for (const std::string& line : Lines(path)) {
    EXPECT_EQ(nlohmann::ordered_json::parse(line).dump(), line);
  }
}

TEST_F(TrainProgram, StoppedAndResumedEqualsStraightThrough) {
  // In the pseudo stage, exactly at the switch, and in the real stage.
  Succeed(TrainWords("stops", {"--until-step", "7"}));
  EXPECT_EQ(ReadBits(Step("stops", 7)).stage, "pseudo");
  for (const char* until : {"10", "13", "20"}) {
    Succeed(TrainWords("stops", {"--resume", "--until-step", until}));
  }
  ExpectSameBits("stops", "straight");
  EXPECT_NE(Difference(ReadBits(Step("stops", kSwitch)),
                       ReadBits(Step("straight", kSteps))),
            "");
  EXPECT_EQ(Losses("stops"), Losses("straight"));
}

TEST_F(TrainProgram, ResumeWithNothingThereStartsAndSaysSo) {
  const Outcome outcome =
      Succeed(TrainWords("fresh", {"--resume", "--until-step", "1"}));
  EXPECT_THAT(outcome.err, HasSubstr("starting afresh"));
  ExpectRefused(TrainWords("fresh2", {"--resume=" + Path("nowhere")}),
                Path("nowhere"));
  EXPECT_FALSE(fs::exists(Path("fresh2")));
}

TEST_F(TrainProgram, ARecipeInTheFolderOneIsIn) {
  // Paths are relative to the recipe, the run's folder is named after it.
  fs::copy(SourcePath("recipes/tiny.toml"), Path("bare.toml"));
  const Outcome outcome = RunDelinkIn(
      Path("."), {"train", "bare.toml", "--until-step", "1", "--threads", "1"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(fs::exists(Step("runs/bare", 1)));
}

TEST_F(TrainProgram, AProgramOfOnesOwnKnowsItsOwnModel) {
  WriteText(Path("own.toml"), R"(
[model]
kind   = "dyt"
layers = 2
dim    = 8
heads  = 2
[data]
train = "corpus/train"
seq   = 16
batch = 4
[optimizer]
kind = "adamw"
lr   = 1e-2
[schedule]
kind  = "constant"
steps = 6
[[stage]]
name  = "pseudo"
share = "all"
until = { steps = 3 }
[[stage]]
name  = "real"
)");
  const Words train = {"train",     Path("own.toml"), "--out",
                       Path("own"), "--threads",      "1"};
  const Outcome own = RunOwnModel(train);
  EXPECT_EQ(own.code, 0) << own.err;
  const Outcome seen = RunOwnModel({"inspect", Step("own", 3)});
  EXPECT_THAT(seen.out,
              AllOf(HasSubstr("dyt"), HasSubstr("mlp: blocks 0-1 share")));
  EXPECT_EQ(RunOwnModel({"generate", Path("own"), "--prompt", "a"}).code, 0);

  // Others do not have its kind, and see what is on disk.
  const json known = json::parse(
      RunOwnModel({"inspect", Step("own", 3), "--json"}).out, nullptr, false);
  json unknown = Json({"inspect", Step("own", 3), "--json"});
  ASSERT_TRUE(known.is_object());
  const json both = {{0, 1}}, alone = {{0}, {1}};
  EXPECT_EQ(unknown["sharing"]["mlp/up/weight"], both) << unknown["sharing"];
  EXPECT_EQ(unknown["sharing"].size(), 12u) << unknown["sharing"];
  unknown["sharing"] = known["sharing"];
  EXPECT_TRUE(unknown["blocks"].is_null());
  unknown["blocks"] = known["blocks"];
  json without_kinds = known;
  for (json& tensor : without_kinds["tensors"]) {
    EXPECT_EQ(tensor.erase("kind"), 1u) << tensor;
  }
  EXPECT_EQ(unknown, without_kinds);
  const Outcome other = Succeed({"inspect", Path("own")});
  EXPECT_THAT(other.out,
              HasSubstr("dyt (a kind that this program does not have)"));
  EXPECT_EQ(
      Json({"inspect", Path("own"), "--json"})["sharing"]["mlp/up/weight"],
      alone);
  EXPECT_THAT(RunDelink({"eval", Path("own"), "--data", Path("corpus")}).err,
              HasSubstr("there is no kind of model \"dyt\""));
}

TEST_F(TrainProgram, ARunThatGrowsSaysThatItWillTakeLonger) {
  const std::string longer = "half the peak, and longer once it has grown\n";
  const Words first = {"--set", "stage.0.depth=1", "--until-step", "1"};
  EXPECT_THAT(RunDelink(TrainWords("growing", first)).err, HasSubstr(longer));
  const Words grown = {"--set", "stage.0.depth=1", "--resume", "--until-step",
                       "11"};
  EXPECT_THAT(RunDelink(TrainWords("growing", grown)).err, HasSubstr(longer));
  const Words later = {"--set", "stage.0.depth=1", "--resume"};
  const Outcome end = Succeed(TrainWords("growing", later));
  EXPECT_THAT(end.err,
              AllOf(HasSubstr("half the peak\n"), Not(HasSubstr(longer))));
}

TEST_F(TrainProgram, ACorpusIsNamedByTheFolderOfBothSides) {
  Succeed(TrainWords("both", {"--set", "data.train=" + Path("corpus")}));
  ExpectSameBits("both", "straight");
  EXPECT_EQ(Json({"eval", Path("both"), "--data", Path("corpus"), "--batches",
                  "2", "--json"})["loss"]
                .get<double>(),
            Loss(Path("straight")));
}

// Nobody reads the log any more after its first line.
TEST_F(TrainProgram, ARunOutlivesTheReaderOfItsLog) {
  const Outcome outcome =
      RunShell("set -o pipefail; \"$0\" \"$@\" 2>&1 | head -n 1",
               TrainWords("unread", {"--set", "schedule.steps=400", "--set",
                                     "run.checkpoint_every=0"}));
  EXPECT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_TRUE(fs::exists(Step("unread", 400)));
}

TEST_F(TrainProgram, UnderMpirunTheSameRun) {
  if (!HaveMpirun()) GTEST_SKIP() << "a build without MPI";
  const Outcome outcome =
      MpirunDelink(2, TrainWords("two", {"--set", "stage.1.parallel.zero=1"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(fs::exists(Step("two", kSteps) + "/rank-00001.h5"));
  EXPECT_NEAR(Loss(Path("two")), Loss(Path("straight")), 1e-4);
}

}  // namespace
}  // namespace delink::testing::train_test
