#include <memory>
#include <utility>
#include <vector>

#include "framework/sharing/share_spec.h"
#include "recipes/schema/limits.h"
#include "tools/syntax/commands.h"

namespace delink::tools {
namespace {

// Options about the measurements and their output.
std::vector<ArgumentSyntax> BenchArguments(BenchCommand& bench) {
  return {
      {.name = "--suite",
       .value = "SUITE",
       .to = &bench.suite,
       .help = "ops (each kernel), step (whole training steps), all (both), "
               "update (AdamW on the host, beside three passes and memory "
               "alone), disk (the disk tier) or machine (the rates that "
               "offloading is planned with) (all)",
       .choices = {"ops", "step", "all", "update", "disk", "machine"}},
      {.name = "--device",
       .value = "DEVICE",
       .to = &bench.device,
       .help = "cpu or cuda (cpu)",
       .choices = {"cpu", "cuda"}},
      {.name = "--shape",
       .value = "NAME",
       .to = &bench.shapes,
       .help = "gpt-10m, llama-10m, gpt-124m, qwen-0.5b, qwen-1.5b, "
               "qwen-3b, qwen-7b, moe-8x2, moe-64x1, gpt-tiny, llama-tiny or "
               "moe-tiny; may be repeated "
               "(steps: the first three, on a GPU gpt-124m, qwen-0.5b and "
               "qwen-1.5b; kernels: gpt-124m)"},
      {.name = "--threads",
       .value = "N",
       .to = &bench.threads,
       .help = "threads of the kernels (the machine's cores)",
       .check = WholeNumber(1, schema::kMaxThreads)},
      {.name = "--quick",
       .to = &bench.quick,
       .help = "measure tiny shapes for a few seconds: rough figures"},
      {.name = "--machine-file",
       .value = "FILE",
       .to = &bench.machine_file,
       .help = "where --suite machine writes the machine "
               "(delink/machine.toml in the user's cache folder)",
       .names = Names::kFile,
       .needs = {"--suite"}},
      {.name = "--json",
       .value = "FILE",
       .to = &bench.json,
       .help = "write all measurements as one JSON object; - prints it to "
               "standard output instead of tables",
       .names = Names::kFile},
      {.name = "--compare",
       .value = "OLD.json",
       .to = &bench.compare,
       .help = "report what got slower or faster than in this file of --json",
       .names = Names::kFile,
       .must_exist = true},
      {.name = "--scratch",
       .value = "DIR",
       .to = &bench.scratch,
       .help = "folder where the disk is measured (the system's folder for "
               "temporary files)",
       .names = Names::kFolder,
       .must_exist = true}};
}

// Options of the steps.
std::vector<ArgumentSyntax> StepArguments(BenchCommand& bench) {
  return {{.name = "--seq",
           .value = "N",
           .to = &bench.seq,
           .help = "tokens of a sequence (256 and 1024; on a GPU 1024)",
           .check = WholeNumber(1, 1 << 20)},
          {.name = "--batch",
           .value = "N",
           .to = &bench.batch,
           .help = "sequences of a step (2048 tokens' worth, of gpt-124m and "
                   "larger ones 1024; on a GPU 8192 to 65536)",
           .check = WholeNumber(1, 1 << 20)},
          {.name = "--share",
           .value = "SPEC",
           .to = &bench.share,
           .help = "what blocks share, written as in a recipe's stage (none "
                   "and all)",
           .check =
               [](const std::string& text) {
                 const auto spec = ParseShareSpec(text);
                 return spec.ok() ? "" : std::string(spec.status().message());
               }},
          {.name = "--depth",
           .value = "N",
           .to = &bench.depth,
           .help = "measure steps that visit the first N blocks as well as "
                   "steps that visit all",
           .check = WholeNumber(1)},
          {.name = "--precision",
           .value = "TYPE",
           .to = &bench.precision,
           .help = "fp32 or bf16 (both; on a GPU bf16)",
           .choices = {"fp32", "bf16"}},
          {.name = "--recompute",
           .value = "WHAT",
           .to = &bench.recompute,
           .help = "none, norm+activation or block (norm+activation; qwen-7b "
                   "on a GPU block)",
           .choices = {"none", "norm+activation", "block"}},
          {.name = "--distinct",
           .value = "N",
           .to = &bench.distinct,
           .help = "draw tokens from the first N ids, so that loads of experts "
                   "are uneven (all ids)",
           .check = WholeNumber(1)},
          SetOption(bench.sets),
          {.name = "--steps",
           .value = "N",
           .to = &bench.steps,
           .help = "steps that are measured, after two that are not (as many "
                   "as take four seconds, at least five)",
           .check = WholeNumber(1)}};
}

}  // namespace

CommandSyntax BenchSyntax() {
  auto bench = std::make_shared<BenchCommand>();
  std::vector<ArgumentSyntax> arguments = BenchArguments(*bench);
  for (ArgumentSyntax& step : StepArguments(*bench)) {
    arguments.push_back(std::move(step));
  }
  return {.name = "bench",
          .summary = "Measure the machine, kernels and training steps",
          .examples = {"delink bench --json today.json --compare old.json",
                       "delink bench --suite step --shape gpt-124m --seq 1024",
                       "delink bench --suite machine"},
          .arguments = std::move(arguments),
          .make = [bench] { return *bench; }};
}

}  // namespace delink::tools
