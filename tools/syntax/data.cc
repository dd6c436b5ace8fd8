#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "recipes/schema/limits.h"
#include "tools/syntax/commands.h"

namespace delink::tools {
namespace {

// The arguments of build, before they are converted to their types.
struct BuildArguments {
  BuildData build;
  std::string format;
};

Command MakeBuild(const BuildArguments& given) {
  BuildData build = given.build;
  if (!given.format.empty()) {
    build.format =
        given.format == "jsonl" ? TextFormat::kJsonl : TextFormat::kText;
  }
  return build;
}

std::string InputProblem(const std::string& input) {
  if (input == kStandardInput) return "";
  return std::string(ExpandInput(input).status().message());
}

// Options about the input of a corpus.
std::vector<ArgumentSyntax> InputArguments(BuildArguments& given) {
  return {{.name = "INPUT",
           .to = &given.build.inputs,
           .help = "files of text or JSONL (UTF-8; also .gz and .zst), folders "
                   "of them, 'quoted patterns', or - for standard input",
           .names = Names::kPath,
           .check = InputProblem},
          {.name = "--format",
           .value = "FORMAT",
           .to = &given.format,
           .help = "text or jsonl, whatever the names of the inputs (by name; "
                   "standard input: text)",
           .choices = {"text", "jsonl"}},
          {.name = "--text-field",
           .value = "NAME",
           .to = &given.build.text_field,
           .help = "the field of a JSONL line that holds the text (text)"}};
}

std::vector<ArgumentSyntax> TokenizerOptions(BuildData& build) {
  return {{.name = "--tokenizer",
           .value = "PATH",
           .to = &build.tokenizer,
           .help = "the tokenizer: a SentencePiece model, a tokenizer.json "
                   "(byte-level BPE), or a folder of Hugging Face that has one "
                   "of them",
           .names = Names::kPath,
           .must_exist = true,
           .excludes = {"--train-tokenizer", "--bytes"}},
          {.name = "--train-tokenizer",
           .value = "VOCAB",
           .to = &build.train_tokenizer,
           .help = "train a SentencePiece model with this many tokens on the "
                   "text",
           .check = WholeNumber(1, 1 << 24),
           .excludes = {"--bytes"}},
          {.name = "--bytes",
           .to = &build.bytes,
           .help = "tokens are the bytes of the text"}};
}

std::vector<ArgumentSyntax> BuildArgumentList(BuildArguments& given) {
  BuildData& build = given.build;
  std::vector<ArgumentSyntax> all = InputArguments(given);
  all.push_back({.name = "--out",
                 .value = "DIR",
                 .to = &build.out,
                 .help = "folder of the corpus",
                 .required = true,
                 .names = Names::kFolder});
  for (ArgumentSyntax& option : TokenizerOptions(build)) {
    all.push_back(std::move(option));
  }
  all.push_back(
      {.name = "--validation",
       .value = "FRACTION",
       .to = &build.validation,
       .help = "part of the documents kept for validation (0.01; 0: none)",
       .check = Number(0, 1)});
  all.push_back({.name = "--threads",
                 .value = "N",
                 .to = &build.threads,
                 .help = "threads that tokenise (the machine's cores); the "
                         "corpus is the same for any number",
                 .check = WholeNumber(1, schema::kMaxThreads)});
  all.push_back({.name = "--overwrite",
                 .to = &build.overwrite,
                 .help = "replace the corpus in --out"});
  return all;
}

CommandSyntax BuildSyntax() {
  auto given = std::make_shared<BuildArguments>();
  return {.name = "build",
          .summary = "Turn text into DIR/train and DIR/validation",
          .examples =
              {"delink data build --out corpus --train-tokenizer 8000 "
               "books/*.txt",
               "zcat dump.gz | delink data build --out corpus --format jsonl "
               "-"},
          .arguments = BuildArgumentList(*given),
          .make = [given] { return MakeBuild(*given); }};
}

ArgumentSyntax CorpusArgument(std::string& folder) {
  return {.name = "DIR",
          .to = &folder,
          .help = kCorpusHelp,
          .names = Names::kFolder,
          .must_exist = true};
}

CommandSyntax CheckSyntax() {
  auto check = std::make_shared<CheckData>();
  return {.name = "check",
          .summary = "Read a whole corpus and report what is in it",
          .examples = {"delink data check corpus"},
          .arguments = {CorpusArgument(check->folder),
                        {.name = "--json",
                         .to = &check->json,
                         .help = "print one JSON object"}},
          .make = [check] { return *check; }};
}

CommandSyntax InfoSyntax() {
  auto info = std::make_shared<DescribeData>();
  return {.name = "info",
          .summary = "Print statistics of a corpus",
          .examples = {"delink data info corpus/train"},
          .arguments = {CorpusArgument(info->folder),
                        {.name = "--json",
                         .to = &info->json,
                         .help = "print one JSON object"}},
          .make = [info] { return *info; }};
}

CommandSyntax VerifySyntax() {
  auto verify = std::make_shared<VerifyData>();
  return {.name = "verify",
          .summary = "Check a corpus against its digests",
          .examples = {"delink data verify corpus/train"},
          .arguments = {CorpusArgument(verify->folder)},
          .make = [verify] { return *verify; }};
}

}  // namespace

CommandSyntax DataSyntax() {
  return {.name = "data",
          .summary = "Make corpora of text or of tokens, and look at them",
          .examples = {"delink data build --out corpus --train-tokenizer 8000 "
                       "books/*.txt"},
          .commands = {BuildSyntax(), ImportSyntax(), InfoSyntax(),
                       CheckSyntax(), VerifySyntax()}};
}

}  // namespace delink::tools
