// The program from outside, from text to text: build a corpus, train from
// pseudo to real, look at it, evaluate, generate, delink by hand, resume.
#include "tests/tools/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "tests/testing/temp_dir.h"

namespace delink::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kSwitch = 10, kSteps = 20;  // of recipes/tiny.toml

// Words that follow each other with some regularity.
std::string SomeText(unsigned seed, int count) {
  const char* const words[] = {"the ",   "slab ",   "of ",  "a ",
                               "layer ", "holds ",  "its ", "weights ",
                               "and ",   "moves.\n"};
  std::string text;
  unsigned state = seed;
  for (int i = 0; i < count; ++i) {
    state = state * 1103515245u + 12345u;
    text += words[(state >> 16) % (i % 3 == 0 ? 10 : 4)];
  }
  return text;
}

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string StepFolder(const std::string& run, int step) {
  const std::string digits = std::to_string(step);
  return run + "/checkpoints/step-" + std::string(8 - digits.size(), '0') +
         digits;
}

// One corpus and one straight run, which the tests look at and do not change.
class Program : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = std::make_unique<TempDir>();
    Words words = {"data", "build", "--bytes",     "--validation",
                   "0.2",  "--out", Path("corpus")};
    for (unsigned i = 0; i < 10; ++i) {
      const std::string text = Path("text" + std::to_string(i) + ".txt");
      WriteText(text, SomeText(i + 1, 500));
      words.push_back(text);
    }
    const Outcome built = RunDelink(words);
    ASSERT_EQ(built.code, 0) << built.err;
    const Outcome trained = RunDelink(TrainWords("straight"));
    ASSERT_EQ(trained.code, 0) << trained.err;
  }
  static void TearDownTestSuite() { dir_.reset(); }

  static std::string Path(const std::string& name) { return *dir_ / name; }

  // Trains recipes/tiny.toml into Path(out).
  static Words TrainWords(const std::string& out, const Words& more = {}) {
    Words words = {"train",     DELINK_SOURCE_DIR "/recipes/tiny.toml",
                   "--out",     Path(out),
                   "--set",     "data.train=" + Path("corpus/train"),
                   "--set",     "run.keep=0",
                   "--threads", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  static json Json(const Words& words) {
    const Outcome outcome = RunDelink(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const json parsed = json::parse(outcome.out, nullptr, false);
    EXPECT_TRUE(parsed.is_object()) << outcome.out;
    return parsed;
  }

 private:
  static std::unique_ptr<TempDir> dir_;
};

std::unique_ptr<TempDir> Program::dir_;

TEST_F(Program, DataInfoAndVerify) {
  const Outcome info = RunDelink({"data", "info", Path("corpus/train")});
  EXPECT_EQ(info.code, 0) << info.err;
  EXPECT_THAT(info.out, HasSubstr("257"));  // bytes, and the end of a document
  const json both = Json({"data", "info", Path("corpus"), "--json"});
  EXPECT_EQ(both["train"]["vocab"], 257);
  EXPECT_GT(both["validation"]["tokens"], 0);
  EXPECT_EQ(RunDelink({"data", "verify", Path("corpus/train")}).code, 0);

  fs::copy(Path("corpus/train"), Path("damaged"));
  for (const auto& entry : fs::directory_iterator(Path("damaged"))) {
    if (entry.path().extension() != ".h5") continue;
    std::fstream file(entry.path(),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    const int last = file.peek();
    file.put(static_cast<char>(last ^ 1));
  }
  const Outcome damaged = RunDelink({"data", "verify", Path("damaged")});
  EXPECT_EQ(damaged.code, 1) << damaged.err;
  EXPECT_THAT(damaged.err, HasSubstr(Path("damaged")));

  const Words again = {"data",  "build",         "--bytes",
                       "--out", Path("damaged"), Path("text0.txt")};
  EXPECT_EQ(RunDelink(again).code, 0);
  const Outcome refused = RunDelink(again);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--overwrite"));
  Words over = again;
  over.push_back("--overwrite");
  EXPECT_EQ(RunDelink(over).code, 0);
}

TEST_F(Program, ARunFolderHoldsWhatIsPromised) {
  for (const char* name : {"recipe.toml", "metrics.jsonl", "log.txt"}) {
    EXPECT_TRUE(fs::is_regular_file(Path("straight/") + name)) << name;
  }
  for (const char* name : {"index.h5", "rank-00000.h5", "recipe.toml",
                           "tokenizer", "SHA256SUMS"}) {
    EXPECT_TRUE(
        fs::is_regular_file(StepFolder(Path("straight"), kSteps) + "/" + name))
        << name;
  }
}

TEST_F(Program, MetricsHaveTheirFieldsAndReadBackBitForBit) {
  const std::string path = Path("straight/metrics.jsonl");
  int steps = 0, validations = 0, switches = 0;
  for (const json& row : Rows(path)) {
    if (row.contains("event")) {
      ++switches;
      EXPECT_EQ(row["event"], "delink");
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
      for (const char* key :
           {"tokens", "loss", "lr", "grad_norm", "seconds", "tokens_per_s"}) {
        EXPECT_TRUE(row[key].is_number()) << key;
      }
    }
  }
  EXPECT_EQ(steps, kSteps);
  EXPECT_EQ(validations, 2);
  EXPECT_EQ(switches, 1);
  // A number whose text is its shortest exact form comes out as it went in.
  for (const std::string& line : Lines(path)) {
    EXPECT_EQ(nlohmann::ordered_json::parse(line).dump(), line);
  }
}

TEST_F(Program, InspectTellsStageSharingAndTensors) {
  const std::string pseudo = StepFolder(Path("straight"), kSwitch);
  const Outcome text = RunDelink({"inspect", pseudo});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("stage       pseudo"),
                              HasSubstr("attention: blocks 0-3 share"),
                              HasSubstr("blocks/3/attn/qkv/weight"),
                              HasSubstr("-> blocks/0/attn/qkv/weight"),
                              HasSubstr("head/weight is embed/token/weight")));

  const json before = Json({"inspect", pseudo, "--json"});
  EXPECT_EQ(before["stage"], "pseudo");
  EXPECT_EQ(before["step"], kSwitch);
  EXPECT_EQ(before["vocab"], 257);
  EXPECT_EQ(before["sharing"]["attention"], json::parse("[[0,1,2,3]]"));
  EXPECT_LT(before["unique_parameters"], before["virtual_parameters"]);
  EXPECT_GT(before["bytes"], 0);

  // A run folder means its newest checkpoint.
  const json after = Json({"inspect", Path("straight"), "--json"});
  EXPECT_EQ(after["stage"], "real");
  EXPECT_EQ(after["step"], kSteps);
  EXPECT_EQ(after["sharing"]["mlp"], json::parse("[[0],[1],[2],[3]]"));
  EXPECT_EQ(after["virtual_parameters"], before["virtual_parameters"]);
  for (const json& tensor : after["tensors"]) {
    EXPECT_EQ(tensor.contains("link"), tensor["name"] == "head/weight");
  }
}

TEST_F(Program, EvalIsTheValidationLossOfTheRun) {
  const Words words = {"eval", Path("straight"), "--data",
                       Path("corpus/validation"), "--json"};
  Words some = words;
  some.insert(some.end(), {"--batches", "2"});
  const json two = Json(some);
  double last = 0;
  for (const json& row : Rows(Path("straight/metrics.jsonl"))) {
    if (row.contains("validation_loss")) last = row["validation_loss"];
  }
  EXPECT_NEAR(two["loss"].get<double>(), last, 1e-9 * last);
  EXPECT_EQ(two["perplexity"].get<double>(),
            std::exp(two["loss"].get<double>()));
  EXPECT_EQ(two["tokens"], 2 * 8 * 32);

  const json all = Json(words);
  EXPECT_GT(all["tokens"], two["tokens"]);
  const Outcome text = RunDelink(
      {"eval", Path("straight"), "--data", Path("corpus/validation")});
  EXPECT_THAT(text.out, AllOf(HasSubstr("perplexity"), HasSubstr("real")));
  if (!HaveMpirun()) GTEST_SKIP() << "a build without MPI";
  const Outcome several = MpirunDelink(2, words);
  EXPECT_EQ(several.code, 0) << several.err;
  EXPECT_EQ(json::parse(several.out, nullptr, false), all);
}

TEST_F(Program, EvalRefusesAnotherVocabulary) {
  const Outcome built = RunDelink({"data", "build", "--train-tokenizer", "400",
                                   "--out", Path("words"), "--validation",
                                   "0.5", DELINK_SOURCE_DIR "/LICENSE"});
  ASSERT_EQ(built.code, 0) << built.err;
  const Outcome outcome =
      RunDelink({"eval", Path("straight"), "--data", Path("words/validation")});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr(Path("words/validation")),
                    HasSubstr(Path("straight")), HasSubstr("tokenizer")));
}

TEST_F(Program, GenerateContinuesAndTheSeedDecides) {
  const auto generate = [](const std::string& seed, const Words& more) {
    Words words = {
        "generate", Path("straight"), "--prompt", "the slab ", "--tokens",
        "40",       "--seed",         seed};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = RunDelink(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, StartsWith("the slab "));
    return outcome.out;
  };
  const std::string text = generate("1", {});
  EXPECT_GT(text.size(), std::string("the slab \n").size());
  EXPECT_EQ(generate("1", {}), text);
  EXPECT_NE(generate("2", {}), text);
  // The likeliest token, whatever the seed.
  EXPECT_EQ(generate("1", {"--temperature", "0"}),
            generate("2", {"--top-k", "1"}));
}

TEST_F(Program, StoppedAndResumedEqualsStraightThrough) {
  // In the pseudo stage, exactly at the switch, and in the real stage.
  const Outcome first = RunDelink(TrainWords("stops", {"--until-step", "7"}));
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(ReadBits(StepFolder(Path("stops"), 7)).stage, "pseudo");
  for (const char* until : {"10", "13", "20"}) {
    const Outcome next =
        RunDelink(TrainWords("stops", {"--resume", "--until-step", until}));
    ASSERT_EQ(next.code, 0) << next.err;
  }
  EXPECT_EQ(Difference(ReadBits(StepFolder(Path("stops"), kSteps)),
                       ReadBits(StepFolder(Path("straight"), kSteps))),
            "");
  EXPECT_NE(Difference(ReadBits(StepFolder(Path("stops"), kSwitch)),
                       ReadBits(StepFolder(Path("straight"), kSteps))),
            "");
  const auto losses = [](const std::string& run) {
    std::map<int, double> all;
    for (const json& row : Rows(Path(run + "/metrics.jsonl"))) {
      if (row.contains("loss")) all[row["step"]] = row["loss"];
    }
    return all;
  };
  EXPECT_EQ(losses("stops"), losses("straight"));
}

TEST_F(Program, DelinkedByHandEqualsTheSwitchOfTheRun) {
  const std::string pseudo = StepFolder(Path("straight"), kSwitch);
  const Outcome cut = RunDelink({"delink", pseudo, Path("by-hand")});
  ASSERT_EQ(cut.code, 0) << cut.err;
  EXPECT_THAT(cut.out,
              AllOf(HasSubstr("stage pseudo -> real"), HasSubstr("scale"),
                    HasSubstr("before"), HasSubstr("after")));
  const json seen = Json({"inspect", Path("by-hand"), "--json"});
  EXPECT_EQ(seen["stage"], "real");
  EXPECT_EQ(seen["step"], kSwitch);
  EXPECT_EQ(seen["unique_parameters"], seen["virtual_parameters"]);

  const auto loss = [](const std::string& checkpoint) {
    return Json({"eval", checkpoint, "--data", Path("corpus/validation"),
                 "--batches", "2", "--json"})["loss"]
        .get<double>();
  };
  EXPECT_EQ(loss(pseudo), loss(Path("by-hand")));

  const Outcome trained =
      RunDelink(TrainWords("hand", {"--resume=" + Path("by-hand")}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(Difference(ReadBits(StepFolder(Path("hand"), kSteps)),
                       ReadBits(StepFolder(Path("straight"), kSteps))),
            "");
}

TEST_F(Program, DelinkByHandPartlyAndEarly) {
  const std::string early = StepFolder(Path("straight"), 5);
  const Outcome cut =
      RunDelink({"delink", early, Path("partly"), "--share",
                 "attention=all,mlp=groups:2", "--state", "reset"});
  ASSERT_EQ(cut.code, 0) << cut.err;
  const json seen = Json({"inspect", Path("partly"), "--json"});
  // No stage of the recipe shares so: the run's own switch is still to come.
  EXPECT_EQ(seen["stage"], "pseudo");
  EXPECT_EQ(seen["sharing"]["attention"], json::parse("[[0,1,2,3]]"));
  EXPECT_EQ(seen["sharing"]["mlp"], json::parse("[[0,1],[2,3]]"));
  EXPECT_EQ(RunDelink(TrainWords("part", {"--resume=" + Path("partly")})).code,
            0);
  EXPECT_EQ(Json({"inspect", Path("part"), "--json"})["stage"], "real");

  // Before its time, straight to the real stage.
  ASSERT_EQ(RunDelink({"delink", early, Path("early")}).code, 0);
  EXPECT_EQ(Json({"inspect", Path("early"), "--json"})["stage"], "real");
  EXPECT_EQ(RunDelink(TrainWords("soon", {"--resume=" + Path("early")})).code,
            0);
}

TEST_F(Program, DelinkRefusesWhatItCannotDo) {
  const std::string pseudo = StepFolder(Path("straight"), kSwitch);
  fs::create_directory(Path("there"));
  const Outcome exists = RunDelink({"delink", pseudo, Path("there")});
  EXPECT_EQ(exists.code, 2);
  EXPECT_THAT(exists.err, HasSubstr(Path("there")));
  const struct {
    Words words;
    const char* message;
  } cases[] = {
      {{pseudo, Path("no"), "--share", "all"}, "nothing to cut"},
      {{pseudo, Path("no"), "--share", "groups:3"}, "groups:3"},
      {{pseudo, Path("no"), "--share", "router=none,mlp=all"}, "router"},
      {{Path("straight"), Path("no")}, "nothing to cut"},
      {{Path("straight"), Path("no"), "--share", "all"}, "only cuts links"},
      {{Path("corpus"), Path("no")}, "no checkpoint there"}};
  for (const auto& [words, message] : cases) {
    Words all = {"delink"};
    all.insert(all.end(), words.begin(), words.end());
    const Outcome outcome = RunDelink(all);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(message));
    EXPECT_FALSE(fs::exists(Path("no")));
  }
}

TEST_F(Program, ARunIsNotOverwrittenUnasked) {
  const Words few = {"--until-step", "1"};
  ASSERT_EQ(RunDelink(TrainWords("mine", few)).code, 0);
  const auto before = Lines(Path("mine/metrics.jsonl"));
  const Outcome refused = RunDelink(TrainWords("mine", few));
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("--resume"), HasSubstr("--overwrite")));
  EXPECT_EQ(Lines(Path("mine/metrics.jsonl")), before);
  EXPECT_EQ(
      RunDelink(TrainWords("mine", {"--until-step", "2", "--overwrite"})).code,
      0);
  EXPECT_FALSE(fs::exists(StepFolder(Path("mine"), 1)));
  EXPECT_TRUE(fs::exists(StepFolder(Path("mine"), 2)));
}

TEST_F(Program, ResumeWithNothingThereStartsAndSaysSo) {
  const Outcome outcome =
      RunDelink(TrainWords("fresh", {"--resume", "--until-step", "1"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("starting afresh"));
  const Outcome named =
      RunDelink(TrainWords("fresh2", {"--resume=" + Path("nowhere")}));
  EXPECT_EQ(named.code, 2);
  EXPECT_THAT(named.err, HasSubstr(Path("nowhere")));
  EXPECT_FALSE(fs::exists(Path("fresh2")));
}

TEST_F(Program, ABadRecipeIsToldBeforeAnythingIsWritten) {
  const struct {
    Words more;
    const char* message;
  } cases[] = {{{"--set", "model.lairs=3"}, "did you mean"},
               {{"--set", "optimizer.lr=fast"}, "optimizer.lr"},
               {{"--set", "data.batch=7"}, "batch"},
               {{"--set", "data.train=/no/such/corpus"}, "/no/such/corpus"},
               {{"--set", "stage.0.parallel.data=3"}, "3"},
               {{"--set", "model.vocab=100"}, "257"}};
  for (const auto& [more, message] : cases) {
    const Outcome outcome = RunDelink(TrainWords("never", more));
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(message));
    EXPECT_FALSE(fs::exists(Path("never")));
  }
}

TEST_F(Program, ARecipeInTheFolderOneIsIn) {
  // Paths are relative to the recipe, the run's folder is named after it.
  fs::copy(DELINK_SOURCE_DIR "/recipes/tiny.toml", Path("bare.toml"));
  const Outcome outcome = RunDelinkIn(
      Path("."), {"train", "bare.toml", "--until-step", "1", "--threads", "1"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(fs::exists(StepFolder(Path("runs/bare"), 1)));
}

TEST_F(Program, ALossThatIsNotFiniteEndsTheRunWithItsStep) {
  const Words wild = {"--set", "optimizer.lr=1000", "--set",
                      "optimizer.clip=0"};
  const Outcome alone = RunDelink(TrainWords("wild", wild));
  EXPECT_EQ(alone.code, 1);
  EXPECT_THAT(alone.err,
              AllOf(HasSubstr("step 2: the loss or its gradient is not finite"),
                    HasSubstr("optimizer.lr")));
  EXPECT_EQ(Rows(Path("wild/metrics.jsonl")).size(), 1u);
  if (!HaveMpirun()) GTEST_SKIP() << "a build without MPI";
  const Outcome both = MpirunDelink(2, TrainWords("wilder", wild));
  EXPECT_EQ(both.code, 1);
  EXPECT_THAT(both.err, HasSubstr("rank 0: step 2: the loss"));
  EXPECT_THAT(both.err, Not(HasSubstr("rank 1: step 2")));
}

TEST_F(Program, AProgramOfOnesOwnKnowsItsOwnModel) {
  WriteText(Path("own.toml"), R"(
[model]
kind   = "bigram"
layers = 2
dim    = 8
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
  const Outcome seen = RunOwnModel({"inspect", StepFolder(Path("own"), 3)});
  EXPECT_THAT(seen.out,
              AllOf(HasSubstr("bigram"), HasSubstr("mlp: blocks 0-1 share")));
  EXPECT_EQ(RunOwnModel({"generate", Path("own"), "--prompt", "a"}).code, 0);

  const Outcome other = RunDelink({"inspect", Path("own")});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("bigram"));
}

TEST_F(Program, ADamagedCheckpointIsPassedOver) {
  fs::copy(Path("straight"), Path("hurt"), fs::copy_options::recursive);
  const std::string newest = StepFolder(Path("hurt"), kSteps);
  std::fstream file(newest + "/rank-00000.h5",
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(5000);
  const int byte = file.peek();
  file.seekp(5000);
  file.put(static_cast<char>(byte ^ 4));
  file.close();

  const Outcome run = RunDelink({"inspect", Path("hurt"), "--json"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr(newest));
  EXPECT_EQ(json::parse(run.out, nullptr, false)["step"], 15);
  const Outcome named = RunDelink({"inspect", newest});
  EXPECT_EQ(named.code, 1);
  EXPECT_THAT(named.err, HasSubstr("rank-00000.h5"));
}

TEST_F(Program, UnderMpirunTheSameRun) {
  if (!HaveMpirun()) GTEST_SKIP() << "a build without MPI";
  const Outcome outcome =
      MpirunDelink(2, TrainWords("two", {"--set", "stage.1.parallel.zero=1"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(fs::exists(StepFolder(Path("two"), kSteps) + "/rank-00001.h5"));
  const auto loss = [](const std::string& run) {
    return Json({"eval", Path(run), "--data", Path("corpus/validation"),
                 "--batches", "2", "--json"})["loss"]
        .get<double>();
  };
  EXPECT_NEAR(loss("two"), loss("straight"), 1e-4);

  const Outcome wrong =
      MpirunDelink(2, TrainWords("never", {"--set", "data.batch=7"}));
  EXPECT_EQ(wrong.code, 2);
  EXPECT_EQ(wrong.err.find("is not a multiple"),
            wrong.err.rfind("is not a multiple"))
      << wrong.err;
  EXPECT_FALSE(fs::exists(Path("never")));
  const Outcome alone = MpirunDelink(2, {"inspect", Path("straight")});
  EXPECT_EQ(alone.code, 2);
  EXPECT_THAT(alone.err, HasSubstr("one process"));
}

}  // namespace
}  // namespace delink::testing
