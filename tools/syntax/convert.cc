#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "recipes/schema/limits.h"
#include "tools/syntax/commands.h"

namespace delink::tools {
namespace {

using safetensors::Type;

// The arguments of convert, before they are converted to their types.
struct ConvertArguments {
  ConvertOptions options;
  std::string to;
  std::string dtype;
  std::string shard_size;
  int64_t threads = 0;  // 0: not given
};

// "5GB", "500MB": powers of 1000, as in `transformers`.
std::optional<int64_t> BytesOf(const std::string& text) {
  constexpr double kMost = 1e18;
  for (const auto& [unit, bytes] :
       {std::pair{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}}) {
    if (!text.ends_with(unit)) continue;
    double count = 0;
    if (!absl::SimpleAtod(text.substr(0, text.size() - 2), &count)) break;
    if (!(count * bytes >= 1e3 && count * bytes <= kMost)) break;
    return static_cast<int64_t>(std::llround(count * bytes));
  }
  return std::nullopt;
}

std::string ShardSizeProblem(const std::string& text) {
  if (BytesOf(text)) return "";
  return "'" + text +
         "' is not a size; give one of at least 1KB, such as 5GB or 500MB";
}

Command MakeConvert(const ConvertArguments& given) {
  ConvertOptions options = given.options;
  for (const ModelForm form :
       {ModelForm::kDelink, ModelForm::kHuggingFace, ModelForm::kLlmC}) {
    if (given.to == ToString(form)) options.to = form;
  }
  for (const auto& [name, type] : {std::pair{"fp32", Type::kF32},
                                   {"bf16", Type::kBF16},
                                   {"fp16", Type::kF16}}) {
    if (given.dtype == name) options.dtype = type;
  }
  if (!given.shard_size.empty()) {
    options.shard_bytes = *BytesOf(given.shard_size);
  }
  if (given.threads > 0) options.threads = static_cast<int>(given.threads);
  return options;
}

std::vector<ArgumentSyntax> ConvertArgumentList(ConvertArguments& given) {
  return {{.name = "IN",
           .to = &given.options.in,
           .help = "a checkpoint (a step folder, or a run folder: its newest), "
                   "a folder of a Hugging Face model, or a file of llm.c",
           .names = Names::kPath,
           .must_exist = true},
          {.name = "OUT",
           .to = &given.options.out,
           .help = "a new folder; for llm.c a new file",
           .names = Names::kFolder},
          {.name = "--to",
           .value = "FORM",
           .to = &given.to,
           .help = "format of OUT: huggingface (the default for a checkpoint), "
                   "llmc, or delink, a checkpoint with weights only",
           .choices = {"huggingface", "llmc", "delink"}},
          {.name = "--dtype",
           .value = "DTYPE",
           .to = &given.dtype,
           .help = "type of the written weights: fp32, bf16 or fp16 (fp32)",
           .choices = {"fp32", "bf16", "fp16"}},
          {.name = "--shard-size",
           .value = "SIZE",
           .to = &given.shard_size,
           .help = "largest size of a file in a Hugging Face folder, such as "
                   "500MB (5GB)",
           .check = ShardSizeProblem},
          {.name = "--threads",
           .value = "N",
           .to = &given.threads,
           .help = "threads that write a Hugging Face folder (twice the "
                   "machine's cores); the files are the same for any number",
           .check = WholeNumber(1, schema::kMaxThreads)},
          {.name = "--dry-run",
           .to = &given.options.dry_run,
           .help = "print the table of tensors and write nothing; everything "
                   "but the values is checked"}};
}

}  // namespace

CommandSyntax ConvertSyntax() {
  auto given = std::make_shared<ConvertArguments>();
  return {.name = "convert",
          .summary = "Convert to or from Hugging Face and llm.c",
          .examples = {"delink convert runs/p2r published --dtype bf16",
                       "delink convert Qwen3-0.6B runs/qwen3",
                       "delink convert gpt2_124M.bin runs/gpt2"},
          .arguments = ConvertArgumentList(*given),
          .make = [given] { return MakeConvert(*given); }};
}

}  // namespace delink::tools
