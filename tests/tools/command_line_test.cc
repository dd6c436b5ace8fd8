// Arguments: help, versions, what is refused and how, and what is understood.
#include "tools/syntax/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>

#include "recipes/record/environment.h"
#include "tests/testing/temp_dir.h"
#include "tests/tools/program.h"

namespace delink::tools::command_line_test {
namespace {

using ::delink::testing::MpirunDelink;
using ::delink::testing::Outcome;
using ::delink::testing::RunDelink;
using ::delink::testing::Words;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

// A file that exists, for arguments that must name one.
constexpr char kFile[] = "/etc/passwd";

CommandLine Parse(const Words& words) {
  std::vector<const char*> argv = {"delink"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  return ParseCommandLine(static_cast<int>(argv.size()), argv.data());
}

template <typename T>
T Understood(const Words& words) {
  const CommandLine line = Parse(words);
  EXPECT_TRUE(line.command.has_value()) << line.text;
  if (!line.command) return T();
  EXPECT_TRUE(std::holds_alternative<T>(*line.command));
  return std::get<T>(*line.command);
}

const std::vector<Words>& AllCommands() {
  static const std::vector<Words> all = {
      {},           {"data"},   {"data", "build"},  {"data", "info"}, {"train"},
      {"plan"},     {"delink"}, {"data", "verify"}, {"inspect"},      {"eval"},
      {"generate"}, {"report"}, {"bench"},          {"completion"},   {"man"},
      {"sweep"},    {"convert"}};
  return all;
}

std::string NameOf(const Words& command) {
  std::string name = "delink";
  for (const std::string& word : command) name += " " + word;
  return name;
}

TEST(Help, OfEveryCommandIsWhole) {
  for (const Words& command : AllCommands()) {
    SCOPED_TRACE(NameOf(command));
    for (const char* flag : {"--help", "-h"}) {
      Words words = command;
      words.push_back(flag);
      const CommandLine line = Parse(words);
      EXPECT_FALSE(line.command.has_value());
      EXPECT_EQ(line.exit_code, 0);
      EXPECT_THAT(line.text,
                  AllOf(HasSubstr("Usage: " + NameOf(command)),
                        HasSubstr("Example:\n"), HasSubstr("--version")));
      std::istringstream lines(line.text);
      for (std::string text; std::getline(lines, text);) {
        EXPECT_LE(text.size(), 80u) << text;
      }
    }
  }
}

TEST(Version, OfEveryCommand) {
  for (const Words& command : AllCommands()) {
    Words words = command;
    words.push_back("--version");
    const CommandLine line = Parse(words);
    EXPECT_EQ(line.exit_code, 0);
    EXPECT_EQ(line.text, BuildLine() + "\n");
  }
  const Outcome outcome = RunDelink({"--version"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out,
              MatchesRegex("delink " DELINK_VERSION
                           " \\(commit ([0-9a-f]{12}(-dirty)?|unknown)"
                           "(; [A-Za-z0-9, -]+)?\\)\n"));
  for (const auto& [feature, built] : std::map<std::string, bool>(
           {{"MPI", DELINK_HAS_MPI}, {"oneDNN", DELINK_HAS_ONEDNN}})) {
    EXPECT_EQ(outcome.out.find(feature) != std::string::npos, built) << feature;
  }
}

TEST(Usage, WhatIsWrongIsNamedWithTheNearestThatIsKnown) {
  const struct {
    Words words;
    const char* message;
  } cases[] = {
      {{}, "delink: A subcommand is required\nSee delink --help"},
      {{"trian"}, "unknown command 'trian'; did you mean 'train'?"},
      {{"--hepl"}, "unknown option '--hepl'; did you mean '--help'?"},
      {{"data"}, "delink data: A subcommand is required"},
      {{"data", "bild"},
       "delink data: unknown command 'bild'; did you mean "
       "'build'?\nSee delink data --help"},
      {{"train"}, "delink train: RECIPE is required"},
      {{"train", "--ot", "x"}, "unknown option '--ot'; did you mean '--out'?"},
      {{"train", kFile, "--treads=3"}, "did you mean '--threads'?"},
      {{"train", kFile, "more"}, "unexpected argument 'more'"},
      {{"train", "no-such.toml"}, "no-such.toml"},
      {{"train", kFile, "--set", "seed"}, "'seed' is not of the form"},
      {{"train", kFile, "--until-step", "x"},
       "--until-step: 'x' is not a whole number from 1 up"},
      {{"train", kFile, "--threads", "0"}, "--threads: '0'"},
      {{"train", kFile, "--resume", "--overwrite"}, "excludes"},
      {{"train", kFile, "--trace", "x", "--trace-steps", "8:5"},
       "--trace-steps: '8:5' names no steps; give a number of steps, or"},
      {{"train", kFile, "--trace-steps", "5"}, "--trace"},
      {{"plan", kFile, "--trace", kFile, "--delay", "5ms"},
       "--delay: '5ms' is not a link; give its latency in seconds and"},
      {{"plan", kFile, "--delay", "1,1"}, "--trace"},
      {{"plan", kFile, "--trace", kFile, "--bus", "1e9"},
       "--bus: '1e9' is not a link; give its latency in seconds and"},
      {{"plan", kFile, "--bus", "1,1"}, "--trace"},
      {{"train", kFile, "--out"}, "--out"},
      {{"data", "build", kFile}, "--out is required"},
      {{"data", "build", "--out", "x", "no-such.txt"}, "no-such.txt"},
      {{"data", "build", "--out", "x", "/etc/no-such*"},
       "/etc/no-such*: no file matches this pattern"},
      {{"data", "build", "--out", "x", "-", "--format", "csv"}, "csv not in"},
      {{"data", "build", "--out", "x", "-", "--threads", "0"},
       "--threads: '0' is not a whole number from 1"},
      {{"data", "build", "--out", "x", kFile, "--bytes", "--tokenizer", kFile},
       "--tokenizer excludes --bytes"},
      {{"data", "build", "--out", "x", kFile, "--validation", "1.5"},
       "--validation: '1.5' is not a number from 0 to 1"},
      {{"delink", "/etc"}, "OUT is required"},
      {{"delink", "no-such", "x"}, "no-such"},
      {{"delink", "/etc", "x", "--share", "some"}, "'some' is no way to share"},
      {{"delink", "/etc", "x", "--state", "lost"}, "lost not in"},
      {{"convert", "/etc"}, "OUT is required"},
      {{"convert", "no-such", "x"}, "no-such"},
      {{"convert", "/etc", "x", "--to", "gguf"}, "gguf not in"},
      {{"convert", "/etc", "x", "--dtype", "fp8"}, "fp8 not in"},
      {{"convert", "/etc", "x", "--shard-size", "5"},
       "--shard-size: '5' is not a size; give one of at least 1KB, such as "
       "5GB"},
      {{"convert", "/etc", "x", "--shard-size", "nanGB"},
       "--shard-size: 'nanGB' is not a size"},
      {{"eval", "/etc", "--batches", "2"}, "--batches requires --data"},
      {{"eval", "/etc", "--data", "/etc", "--choices", kFile},
       "--data excludes --choices"},
      {{"eval", "/etc", "--data", "/etc", "--lines", "x"},
       "--data excludes --lines"},
      {{"eval", "/etc", "--choices", kFile, "--loglikelihood", kFile},
       "--choices excludes --loglikelihood"},
      {{"generate", "/etc", "--prompt", "x", "--prompts", kFile},
       "--prompt excludes --prompts"},
      {{"eval", "/etc", "--precision", "fp64"}, "fp64 not in"},
      {{"sweep", kFile}, "--out is required"},
      {{"sweep", kFile, "--out", "x", "--jobs", "0"},
       "--jobs: '0' is not a whole number from 1"},
      {{"generate", "/etc"}, "--prompt or --prompts is required"},
      {{"generate", "/etc", "--prompt", "x", "--temperature", "-1"},
       "--temperature: '-1' is not a number from 0 up"},
      {{"generate", "/etc", "--prompt", "x", "--top-p", "0"}, "--top-p: '0'"},
      {{"generate", "/etc", "--prompt", "x", "--top-k", "1.5"},
       "--top-k: '1.5'"},
      {{"completion"}, "SHELL is required"},
      {{"completion", "csh"}, "csh not in"},
  };
  for (const auto& [words, message] : cases) {
    const CommandLine line = Parse(words);
    EXPECT_FALSE(line.command.has_value());
    EXPECT_EQ(line.exit_code, 2);
    EXPECT_THAT(line.text, HasSubstr(message));
    EXPECT_THAT(line.text, HasSubstr("--help\n"));
  }
}

TEST(Usage, TheProgramExitsWithTwoAndPrintsOnStandardError) {
  const Outcome outcome = RunDelink({"train", "--ot", "x"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.out, IsEmpty());
  EXPECT_THAT(outcome.err, HasSubstr("did you mean '--out'?"));
}

TEST(Usage, UnderMpirunOneRankSpeaks) {
  if (!testing::HaveMpirun()) GTEST_SKIP() << "a build without MPI";
  const Outcome help = MpirunDelink(2, {"train", "--help"});
  EXPECT_EQ(help.code, 0) << help.err;
  EXPECT_EQ(help.out.find("Usage:"), help.out.rfind("Usage:"));
  const Outcome wrong = MpirunDelink(2, {"trian"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("did you mean 'train'?"));
  EXPECT_EQ(wrong.err.find("did you mean"), wrong.err.rfind("did you mean"));
}

TEST(CommandLine, Train) {
  const auto plain = Understood<TrainOptions>({"train", kFile});
  EXPECT_EQ(plain.recipe, kFile);
  EXPECT_FALSE(plain.resume || plain.overwrite || plain.until_step);
  EXPECT_EQ(plain.threads, 0);

  // The recipe may follow options of repeated or optional value.
  const auto full = Understood<TrainOptions>(
      {"train", "--set", "a.b=1", "--set", "c=x=y", "--resume", kFile, "--out",
       "runs/x", "--until-step", "7", "--threads", "2"});
  EXPECT_EQ(full.recipe, kFile);
  EXPECT_THAT(full.sets, ElementsAre("a.b=1", "c=x=y"));
  EXPECT_TRUE(full.resume);
  EXPECT_EQ(full.resume_from, "");
  EXPECT_EQ(full.out, "runs/x");
  EXPECT_EQ(full.until_step, 7);
  EXPECT_EQ(full.threads, 2);

  EXPECT_EQ(plain.trace, "");
  const auto traced = Understood<TrainOptions>(
      {"train", kFile, "--trace", "t.json", "--trace-steps", "5:8"});
  EXPECT_EQ(traced.trace, "t.json");
  EXPECT_EQ(traced.trace_steps.first, 5);
  EXPECT_EQ(traced.trace_steps.last, 8);

  const auto from =
      Understood<TrainOptions>({"train", "--resume=some/where", kFile});
  EXPECT_TRUE(from.resume);
  EXPECT_EQ(from.resume_from, "some/where");
  EXPECT_TRUE(
      Understood<TrainOptions>({"train", kFile, "--overwrite"}).overwrite);
}

TEST(CommandLine, Data) {
  const auto build =
      Understood<BuildData>({"data", "build", "--out", "x", "--train-tokenizer",
                             "500", "--validation", "0.2", kFile, "/etc"});
  EXPECT_THAT(build.inputs, ElementsAre(kFile, "/etc"));
  EXPECT_EQ(build.out, "x");
  EXPECT_EQ(build.train_tokenizer, 500);
  EXPECT_EQ(build.validation, 0.2);
  const auto bytes =
      Understood<BuildData>({"data", "build", kFile, "--bytes", "--out", "x"});
  EXPECT_TRUE(bytes.bytes);
  EXPECT_EQ(bytes.validation, 0.01);
  EXPECT_EQ(bytes.format, TextFormat::kByName);
  EXPECT_EQ(bytes.text_field, "text");
  EXPECT_EQ(bytes.threads, 0);
  // Standard input and patterns are inputs; the pattern stays one.
  const auto lines = Understood<BuildData>(
      {"data", "build", "--out", "x", "--format", "jsonl", "--text-field",
       "body", "--threads", "3", "-", "/etc/pass*"});
  EXPECT_THAT(lines.inputs, ElementsAre("-", "/etc/pass*"));
  EXPECT_EQ(lines.format, TextFormat::kJsonl);
  EXPECT_EQ(lines.text_field, "body");
  EXPECT_EQ(lines.threads, 3);
  EXPECT_EQ(Understood<DescribeData>({"data", "info", "/etc"}).folder, "/etc");
  EXPECT_EQ(Understood<VerifyData>({"data", "verify", "/etc"}).folder, "/etc");
}

TEST(CommandLine, Convert) {
  const auto plain = Understood<ConvertOptions>({"convert", "/etc", "x"});
  EXPECT_EQ(plain.in, "/etc");
  EXPECT_EQ(plain.out, "x");
  EXPECT_FALSE(plain.to || plain.dtype || plain.dry_run);
  EXPECT_FALSE(plain.shard_bytes || plain.threads);
  const auto full = Understood<ConvertOptions>(
      {"convert", "/etc", "x", "--to", "huggingface", "--dtype", "bf16",
       "--shard-size", "1.5MB", "--threads", "3", "--dry-run"});
  EXPECT_EQ(full.to, ModelForm::kHuggingFace);
  EXPECT_EQ(full.dtype, safetensors::Type::kBF16);
  EXPECT_EQ(full.shard_bytes, 1'500'000);
  EXPECT_EQ(full.threads, 3);
  EXPECT_TRUE(full.dry_run);
}

TEST(CommandLine, Checkpoints) {
  const auto plain = Understood<DelinkCommand>({"delink", "/etc", "x"});
  EXPECT_EQ(plain.checkpoint, "/etc");
  EXPECT_EQ(plain.out, "x");
  EXPECT_FALSE(plain.share || plain.state);
  const auto full = Understood<DelinkCommand>({"delink", "/etc", "x", "--share",
                                               "attention=all,mlp=groups:2",
                                               "--state", "reset"});
  ASSERT_TRUE(full.share.has_value());
  EXPECT_EQ(ToString(*full.share), "attention=all,mlp=groups:2");
  EXPECT_EQ(full.state, StatePolicy::kReset);

  EXPECT_TRUE(Understood<Inspect>({"inspect", "/etc", "--json"}).json);
  const auto eval = Understood<Eval>(
      {"eval", "/etc", "--data", "/etc", "--batches", "3", "--json"});
  EXPECT_EQ(eval.batches, 3);
  EXPECT_TRUE(eval.json);
  const std::string set = "stage.1.parallel.tensor=2";
  for (const char* what : {"--data", "--choices", "--loglikelihood"}) {
    EXPECT_EQ(Understood<Eval>({"eval", "/etc", what,
                                what == std::string("--data") ? "/etc" : kFile,
                                "--set", set})
                  .sets,
              Words{set});
  }
  EXPECT_EQ(eval.delimiter, " ");
  const auto choices = Understood<Eval>(
      {"eval", "/etc", "--choices", kFile, "--delimiter", "", "--lines", "x"});
  EXPECT_EQ(choices.choices, kFile);
  EXPECT_EQ(choices.delimiter, "");
  EXPECT_EQ(choices.lines, "x");
  const auto sweep =
      Understood<SweepCommand>({"sweep", kFile, "--out", "x", "--jobs", "2",
                                "--set", "a=1", "--dry-run", "--set", "b=2"});
  EXPECT_EQ(sweep.jobs, 2);
  EXPECT_EQ(sweep.sets, (Words{"a=1", "b=2"}));
  EXPECT_TRUE(sweep.dry_run);
  const auto generate = Understood<Generate>(
      {"generate", "/etc", "--prompt", "--odd", "--tokens", "5",
       "--temperature", "0", "--top-k", "3", "--top-p", "0.5", "--seed", "9"});
  EXPECT_EQ(generate.prompt, "--odd");
  EXPECT_EQ(generate.prompts, "");
  EXPECT_EQ(Understood<Generate>({"generate", "/etc", "--prompt", ""}).prompt,
            "");
  EXPECT_EQ(
      Understood<Generate>({"generate", "/etc", "--prompts", kFile}).prompts,
      kFile);
  EXPECT_EQ(generate.tokens, 5);
  EXPECT_EQ(generate.temperature, 0);
  EXPECT_EQ(generate.top_k, 3);
  EXPECT_EQ(generate.top_p, 0.5);
  EXPECT_EQ(generate.seed, 9u);
}

}  // namespace
}  // namespace delink::tools::command_line_test
