// Commands that look at corpora and checkpoints, from outside: data, inspect,
// eval, generate, delink.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "tests/testing/source_path.h"
#include "tests/tools/program_fixture.h"

namespace delink::testing::checkpoint_commands_test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::StartsWith;

namespace fs = std::filesystem;
using nlohmann::json;

using Commands = Program;

TEST_F(Commands, DataInfoAndVerify) {
  const Outcome info = Succeed({"data", "info", Path("corpus/train")});
  EXPECT_THAT(info.out, HasSubstr("257"));  // bytes, and the end of a document
  const json both = Json({"data", "info", Path("corpus"), "--json"});
  EXPECT_EQ(both["train"]["vocab"], 257);
  EXPECT_GT(both["validation"]["tokens"], 0);
  Succeed({"data", "verify", Path("corpus/train")});
}

// Wherever the weights are at home.
TEST_F(Commands, WeightsOfTheHostSayTheSame) {
  const std::string run = Path("straight");
  for (const Words& command :
       {Words{"eval", run, "--data", Path("corpus"), "--json"},
        Words{"generate", run, "--prompt", "the slab", "--tokens", "20"}}) {
    const Outcome resident = Succeed(command);
    const std::string key = "stage.1.offload.weights=";
    EXPECT_EQ(Succeed(With(command, {"--set", key + "host"})).out,
              resident.out);
    ExpectRefused(With(command, {"--set", key + "there"}),
                  "stage[1].offload.weights");
  }
}

TEST_F(Commands, InspectTellsStageSharingAndTensors) {
  const std::string pseudo = Step("straight", kSwitch);
  const Outcome text = Succeed({"inspect", pseudo});
  EXPECT_THAT(text.out, AllOf(HasSubstr("stage       pseudo"),
                              HasSubstr("attention: blocks 0-3 share"),
                              HasSubstr("blocks/3/attn/qkv/weight"),
                              HasSubstr("-> blocks/0/attn/qkv/weight"),
                              HasSubstr("head/weight is embed/token/weight")));

  const json before = Json({"inspect", pseudo, "--json"});
  EXPECT_EQ(before["stage"], "pseudo");
  EXPECT_EQ(before["step"], kSwitch);
  EXPECT_EQ(before["vocab"], 257);
  EXPECT_GT(before["flops"], 0);
  EXPECT_THAT(text.out, ContainsRegex("tokens, [0-9.]+ .FLOP, "));
  // The program says of itself what it writes of itself.
  EXPECT_EQ(before["program"].get<std::string>() + "\n",
            RunDelink({"--version"}).out);
  EXPECT_THAT(text.out, HasSubstr("written by  delink "));
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

TEST_F(Commands, EvalIsTheValidationLossOfTheRun) {
  const Words words = {"eval", Path("straight"), "--data",
                       Path("corpus/validation"), "--json"};
  const json two = Json(With(words, {"--batches", "2"}));
  const double last = LastValidation("straight");
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

TEST_F(Commands, GenerateContinuesAndTheSeedDecides) {
  const auto generate = [](const std::string& seed, const Words& more) {
    const Outcome outcome =
        Succeed(With({"generate", Path("straight"), "--prompt", "the slab ",
                      "--tokens", "40", "--seed", seed},
                     more));
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

TEST_F(Commands, GenerateContinuesAllPromptsOfAFile) {
  WriteText(Path("prompts.jsonl"),
            "{\"prompt\": \"the slab \", \"seed\": 2}\n"
            "{\"prompt\": \"the slab \", \"tokens\": 5}\n");
  const Outcome all =
      Succeed({"generate", Path("straight"), "--prompts", Path("prompts.jsonl"),
               "--tokens", "9", "--top-k", "20"});
  const size_t first = all.out.find('\n') + 1;
  const json rows[] = {json::parse(all.out.substr(0, first)),
                       json::parse(all.out.substr(first))};
  EXPECT_EQ(rows[0]["line"], 1);
  EXPECT_EQ(rows[1]["tokens"], 5);
  EXPECT_EQ(rows[1]["ended_by"], "tokens");
  const Outcome one =
      RunDelink({"generate", Path("straight"), "--prompt", "the slab ",
                 "--tokens", "9", "--top-k", "20", "--seed", "2"});
  EXPECT_EQ(one.out, "the slab " + rows[0]["text"].get<std::string>() + "\n");
  WriteText(Path("wrong.jsonl"), "{}\n");
  ExpectRefused(
      {"generate", Path("straight"), "--prompts", Path("wrong.jsonl")},
      "wrong.jsonl:1: the line has no `prompt`");
}

TEST_F(Commands, EvalScoresTexts) {
  WriteText(Path("pairs.jsonl"),
            "{\"context\": \"the slab \", \"continuation\": \"of a\"}\n"
            "{\"text\": \"the slab\"}\n");
  const Words words = {"eval", Path("straight"), "--loglikelihood",
                       Path("pairs.jsonl")};
  const Words lines = With(words, {"--json", "--lines", Path("scores.jsonl")});
  const json sum = Json(lines);
  EXPECT_EQ(sum["pairs"], 2);
  EXPECT_EQ(sum["tokens"], 5 + 8);
  double all = 0;
  for (const json& row : Rows(Path("scores.jsonl"))) {
    double tokens = 0;
    for (const json& token : row["tokens"]) {
      tokens += token["log_likelihood"].get<double>();
    }
    EXPECT_EQ(row["log_likelihood"].get<double>(), tokens);
    all += tokens;
  }
  EXPECT_EQ(sum["log_likelihood"].get<double>(), all);
  ExpectRefused(lines, "--lines: ");
  const Outcome text = RunDelink(words);
  EXPECT_THAT(text.out, HasSubstr("13 tokens of 2 texts"));
  ExpectRefused({"eval", Path("straight")}, "--loglikelihood");
  if (!HaveMpirun()) GTEST_SKIP() << "a build without MPI";
  const Outcome several = MpirunDelink(2, With(words, {"--json"}));
  EXPECT_EQ(several.code, 0) << several.err;
  EXPECT_EQ(json::parse(several.out, nullptr, false), sum);
}

// Of 2000 ids the tokenizer has 257; the others, which stand for nothing, would
// leave few of 60 tokens to be seen.
TEST_F(Commands, GenerateDrawsWhatTheTokenizerHas) {
  Succeed(
      TrainWords("padded", {"--set", "model.vocab=2000", "--until-step", "1"}));
  size_t longest = 0;
  for (const char* seed : {"1", "2", "3"}) {
    const Outcome outcome =
        Succeed({"generate", Path("padded"), "--prompt", "a", "--tokens", "60",
                 "--temperature", "100", "--seed", seed});
    longest = std::max(longest, outcome.out.size());
  }
  EXPECT_GT(longest, 50U);
}

TEST_F(Commands, DelinkedByHandEqualsTheSwitchOfTheRun) {
  const std::string pseudo = Step("straight", kSwitch);
  const Outcome cut = Succeed({"delink", pseudo, Path("by-hand")});
  EXPECT_THAT(cut.out,
              AllOf(HasSubstr("stage pseudo -> real"), HasSubstr("scale"),
                    HasSubstr("before"), HasSubstr("after")));
  const json seen = Json({"inspect", Path("by-hand"), "--json"});
  EXPECT_THAT(seen["program"].get<std::string>(), HasSubstr("(commit "));
  EXPECT_EQ(seen["stage"], "real");
  EXPECT_EQ(seen["step"], kSwitch);
  EXPECT_EQ(seen["unique_parameters"], seen["virtual_parameters"]);

  EXPECT_EQ(Loss(pseudo), Loss(Path("by-hand")));

  Succeed(TrainWords("hand", {"--resume=" + Path("by-hand")}));
  ExpectSameBits("hand", "straight");
}

TEST_F(Commands, DelinkByHandPartlyAndEarly) {
  const std::string early = Step("straight", 5);
  Succeed({"delink", early, Path("partly"), "--share",
           "attention=all,mlp=groups:2", "--state", "reset"});
  const json seen = Json({"inspect", Path("partly"), "--json"});
  // No stage of the recipe shares so: the run's own switch is still to come.
  EXPECT_EQ(seen["stage"], "pseudo");
  EXPECT_EQ(seen["sharing"]["attention"], json::parse("[[0,1,2,3]]"));
  EXPECT_EQ(seen["sharing"]["mlp"], json::parse("[[0,1],[2,3]]"));
  Succeed(TrainWords("part", {"--resume=" + Path("partly")}));
  EXPECT_EQ(Json({"inspect", Path("part"), "--json"})["stage"], "real");

  // Before its time, straight to the real stage.
  Succeed({"delink", early, Path("early")});
  EXPECT_EQ(Json({"inspect", Path("early"), "--json"})["stage"], "real");
  Succeed(TrainWords("soon", {"--resume=" + Path("early")}));
}

// 1 -> 2 -> 4 -> 8 sets in one run; each switch by hand ends as the run does.
class Growth : public Commands {
 protected:
  static constexpr int kEach = 5;  // steps a stage

  static void SetUpTestSuite() {
    Commands::SetUpTestSuite();
    Succeed(GrowthWords("growth"));
  }

  static Words GrowthWords(const std::string& out, const Words& more = {}) {
    Words words = TrainWords(
        out, {"--set", "stage.1.state=scale", "--set", "stage.2.state=scale"});
    words[1] = SourcePath("recipes/tiny_growth.toml");
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

TEST_F(Growth, EverySwitchByHandEqualsTheRuns) {
  const struct {
    const char* share;
    const char* stage;
    const char* sharing;
  } switches[] = {{"groups:2", "pairs", "[[0,1,2,3],[4,5,6,7]]"},
                  {"groups:4", "fours", "[[0,1],[2,3],[4,5],[6,7]]"},
                  {"none", "real", "[[0],[1],[2],[3],[4],[5],[6],[7]]"}};
  int step = 0;
  for (const auto& [share, stage, sharing] : switches) {
    SCOPED_TRACE(share);
    step += kEach;
    const std::string before = Step("growth", step);
    Succeed({"delink", before, Path(stage), "--share", share});
    const json seen = Json({"inspect", Path(stage), "--json"});
    EXPECT_EQ(seen["stage"], stage);
    EXPECT_EQ(seen["step"], step);
    EXPECT_EQ(seen["sharing"]["mlp"], json::parse(sharing));
    EXPECT_EQ(Loss(before), Loss(Path(stage)));

    const std::string on = std::string(stage) + "-on";
    Succeed(GrowthWords(on, {"--resume=" + Path(stage)}));
    ExpectSameBits(on, "growth");
  }
}

TEST_F(Growth, AStageMayBeSkipped) {
  const std::string pseudo = Step("growth", kEach);
  Succeed({"delink", pseudo, Path("skip"), "--share", "groups:4"});
  EXPECT_EQ(Json({"inspect", Path("skip"), "--json"})["stage"], "fours");
  EXPECT_EQ(Loss(pseudo), Loss(Path("skip")));
  Succeed(GrowthWords("skipped", {"--resume=" + Path("skip")}));
  EXPECT_EQ(Json({"inspect", Path("skipped"), "--json"})["stage"], "real");
}

// The recipe may ask for what only a run can do.
TEST_F(Growth, CalibratedIsForTheRun) {
  Succeed(GrowthWords(
      "measured", {"--set", "stage.1.state=calibrated", "--until-step", "5"}));
  ExpectRefused({"delink", Path("measured"), Path("no")},
                "state 'calibrated', as the recipe's next stage says, "
                "needs gradients");
  EXPECT_FALSE(fs::exists(Path("no")));
  Succeed({"delink", Path("measured"), Path("scaled"), "--state", "scale"});
  EXPECT_EQ(Json({"inspect", Path("scaled"), "--json"})["stage"], "pairs");
}

TEST_F(Growth, OnlyCutsLinks) {
  const std::string pairs = Step("growth", 2 * kEach);  // shares by groups:2
  const struct {
    const char* share;
    const char* message;
  } cases[] = {{"all", "share norm after the switch but did not before it"},
               {"cycle:2", "blocks 0 and 4 share"},
               {"cycle:4", "only cuts links"},
               {"groups:4,mlp=none", "groups:4,mlp=none"},
               {"attention=groups:4,mlp=all", "share mlp after the switch"},
               {"groups:2", "nothing to cut"},
               {"groups:3", "groups:3 does not divide 8 layers"}};
  for (const auto& [share, message] : cases) {
    ExpectRefused({"delink", pairs, Path("no"), "--share", share}, message);
    EXPECT_FALSE(fs::exists(Path("no")));
  }
}

TEST_F(Commands, DelinkRefusesWhatItCannotDo) {
  const std::string pseudo = Step("straight", kSwitch);
  fs::create_directory(Path("there"));
  ExpectRefused({"delink", pseudo, Path("there")}, Path("there"));
  const struct {
    Words words;
    const char* message;
  } cases[] = {
      {{pseudo, Path("no"), "--share", "all"}, "nothing to cut"},
      {{pseudo, Path("no"), "--share", "groups:3"}, "groups:3"},
      {{pseudo, Path("no"), "--state", "calibrated"},
       "state 'calibrated' needs gradients, which only a run has: give --state "
       "scale or reset, or resume the run"},
      {{pseudo, Path("no"), "--share", "router=none,mlp=all"}, "router"},
      {{Path("straight"), Path("no")}, "nothing to cut"},
      {{Path("straight"), Path("no"), "--share", "all"}, "only cuts links"},
      {{Path("corpus"), Path("no")}, "no checkpoint there"}};
  for (const auto& [words, message] : cases) {
    ExpectRefused(With({"delink"}, words), message);
    EXPECT_FALSE(fs::exists(Path("no")));
  }
}

// What the library refuses: upcycling_test.cc.
TEST_F(Commands, UpcyclingRefusesWhatItCannotDo) {
  const std::string real = Path("straight");
  const struct {
    Words words;
    const char* message;
  } cases[] = {
      {{"--experts", "0"}, "--experts: '0' is not a whole number from 1"},
      {{"--experts", "2", "--top-k", "3"},
       "--top-k 3: a token goes to at most all 2 experts"},
      {{"--experts", "2", "--noise", "-0.1"}, "--noise: '-0.1'"},
      {{"--experts", "2", "--noise", "nan"}, "--noise: 'nan'"},
      {{"--top-k", "2"}, "--top-k requires --experts"},
      {{"--noise", "1"}, "--noise requires --experts"},
      {{"--set", "model.top_k=1"}, "--set requires --experts"},
      {{"--experts", "2", "--set", "run.seed=2"},
       "--set run.seed=2: only optimizer.group and keys of a model"},
      {{"--experts", "2", "--set", "model.kind=gpt"},
       "--set model.kind=gpt: only"},
      {{"--experts", "2", "--set", "model.lairs=2"}, "did you mean 'layers'"},
      {{"--experts", "2", "--set", "model.bias=false"},
       "has blocks/0/mlp/down/bias, but the model's experts"},
  };
  for (const auto& [words, message] : cases) {
    ExpectRefused(With({"delink", real, Path("no")}, words), message);
    EXPECT_FALSE(fs::exists(Path("no")));
  }
}

}  // namespace
}  // namespace delink::testing::checkpoint_commands_test
