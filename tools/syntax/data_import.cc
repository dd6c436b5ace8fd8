#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tools/syntax/commands.h"

namespace delink::tools {
namespace {

// The arguments of import, before they are converted to their types.
struct ImportArguments {
  ImportData import;
  std::string format;
};

struct FormatName {
  const char* name;
  TokenFormat format;
};
constexpr FormatName kFormats[] = {{"megatron", TokenFormat::kMegatron},
                                   {"llmc", TokenFormat::kLlmC},
                                   {"npy", TokenFormat::kNumpy},
                                   {"raw", TokenFormat::kRaw}};

Command MakeImport(const ImportArguments& given) {
  ImportData import = given.import;
  for (const FormatName& known : kFormats) {
    if (given.format == known.name) import.layout.format = known.format;
  }
  return import;
}

std::vector<std::string> FormatNames() {
  std::vector<std::string> names;
  for (const FormatName& known : kFormats) names.push_back(known.name);
  return names;
}

// Options about the files.
std::vector<ArgumentSyntax> FileArguments(ImportArguments& given) {
  LayoutOptions& layout = given.import.layout;
  return {
      {.name = "INPUT",
       .to = &given.import.inputs,
       .help = "files of Megatron (.bin beside .idx), llm.c or NumPy, or of "
               "ids alone; folders of them, or 'quoted patterns'",
       .names = Names::kPath,
       .check =
           [](const std::string& input) {
             return std::string(ExpandInput(input).status().message());
           }},
      {.name = "--format",
       .value = "FORMAT",
       .to = &given.format,
       .help = "megatron, llmc, npy or raw, whatever the files look like "
               "(recognised by name and first bytes)",
       .choices = FormatNames()},
      {.name = "--dtype",
       .value = "TYPE",
       .to = &layout.dtype,
       .help = "type of the ids in raw files: u16, u32, i32, i64, u8, i8 or "
               "i16",
       .choices = TokenElementNames()},
      {.name = "--rows",
       .to = &layout.rows,
       .help = "each row of a .npy file is a document (else rows are joined)"}};
}

std::vector<ArgumentSyntax> MeaningArguments(ImportData& import) {
  return {{.name = "--tokenizer",
           .value = "PATH",
           .to = &import.tokenizer,
           .help = "the tokenizer that made the ids: a SentencePiece model, a "
                   "tokenizer.json, or a folder of Hugging Face",
           .names = Names::kPath,
           .must_exist = true,
           .excludes = {"--vocab"}},
          {.name = "--vocab",
           .value = "N",
           .to = &import.vocab,
           .help = "number of ids, if no tokenizer is given",
           .check = WholeNumber(1, (1 << 24) - 1)},
          {.name = "--eot",
           .value = "ID",
           .to = &import.end_of_document,
           .help = "the id at the end of documents (the tokenizer's; else one "
                   "more than the files have)",
           .check = WholeNumber(0, (1 << 24) - 1)}};
}

}  // namespace

CommandSyntax ImportSyntax() {
  auto given = std::make_shared<ImportArguments>();
  ImportData& import = given->import;
  std::vector<ArgumentSyntax> all = FileArguments(*given);
  all.push_back({.name = "--out",
                 .value = "DIR",
                 .to = &import.out,
                 .help = "folder of the corpus",
                 .required = true,
                 .names = Names::kFolder});
  std::ranges::move(MeaningArguments(import), std::back_inserter(all));
  all.push_back(
      {.name = "--validation",
       .value = "FRACTION",
       .to = &import.validation,
       .help = "part of the documents kept for validation (0.01; 0: none)",
       .check = Number(0, 1)});
  all.push_back({.name = "--overwrite",
                 .to = &import.overwrite,
                 .help = "replace the corpus in --out"});
  return {.name = "import",
          .summary = "Turn token files into DIR/train and DIR/validation",
          .examples = {"delink data import --out corpus --tokenizer "
                       "tokenizer.json my_text.bin",
                       "delink data import --out corpus --vocab 50257 --eot "
                       "50256 'fineweb_train_*.bin'"},
          .arguments = std::move(all),
          .make = [given] { return MakeImport(*given); }};
}

}  // namespace delink::tools
