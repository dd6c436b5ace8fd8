#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/comm/link.h"
#include "recipes/schema/limits.h"
#include "tools/syntax/commands.h"

namespace delink::tools {
namespace {

// --device is short for a key of the recipe.
void SetDevice(const std::string& device, std::vector<std::string>& sets) {
  if (!device.empty()) sets.push_back("run.device=" + device);
}

// The arguments of train, before they are converted to their types.
struct TrainArguments {
  TrainOptions options;
  OptionalText resume;
  std::string device;
  int64_t until_step = 0;  // 0: none
  std::string trace_steps;
};

Command MakeTrain(const TrainArguments& given) {
  TrainOptions options = given.options;
  SetDevice(given.device, options.sets);
  options.resume = given.resume.given;
  options.resume_from = given.resume.value;
  if (given.until_step > 0) options.until_step = given.until_step;
  if (!given.trace_steps.empty()) {
    options.trace_steps = *ParseTraceSteps(given.trace_steps);
  }
  return options;
}

ArgumentSyntax RecipeArgument(std::string& recipe) {
  return {.name = "RECIPE",
          .to = &recipe,
          .help = "a TOML file: docs/recipe.md",
          .names = Names::kFile,
          .must_exist = true};
}

std::vector<ArgumentSyntax> TraceOptions(TrainArguments& given) {
  return {{.name = "--trace",
           .value = "FILE",
           .to = &given.options.trace,
           .help = "write the time of each instruction of some steps, for "
                   "Perfetto or chrome://tracing",
           .names = Names::kFile},
          {.name = "--trace-steps",
           .value = "N|A:B",
           .to = &given.trace_steps,
           .help = "the traced steps: the first N of this call, or A to B of "
                   "the run (10)",
           .check =
               [](const std::string& text) {
                 const auto steps = ParseTraceSteps(text);
                 return steps.ok() ? "" : std::string(steps.status().message());
               },
           .needs = {"--trace"}}};
}

std::vector<ArgumentSyntax> TrainArgumentList(TrainArguments& given) {
  TrainOptions& options = given.options;
  return {RecipeArgument(options.recipe),
          SetOption(options.sets),
          {.name = "--out",
           .value = "DIR",
           .to = &options.out,
           .help = "folder of the run (runs/NAME-OF-RECIPE)",
           .names = Names::kFolder},
          {.name = "--resume",
           .value = "CHECKPOINT",
           .to = &given.resume,
           .help = "continue from CHECKPOINT, by default the newest whole one "
                   "in --out; if there is none, start anew",
           .names = Names::kPath},
          {.name = "--overwrite",
           .to = &options.overwrite,
           .help = "remove the run in --out and start anew",
           .excludes = {"--resume"}},
          {.name = "--init",
           .value = "CHECKPOINT",
           .to = &options.init,
           .help = "start with only the weights of CHECKPOINT, which may be a "
                   "Hugging Face folder",
           .names = Names::kPath},
          {.name = "--until-step",
           .value = "N",
           .to = &given.until_step,
           .help = "save and stop after step N",
           .check = WholeNumber(1)},
          DeviceOption(given.device, "the recipe's"),
          {.name = "--threads",
           .value = "N",
           .to = &options.threads,
           .help = "threads of each rank (the recipe's, or the machine's "
                   "cores divided among its ranks)",
           .check = WholeNumber(1, schema::kMaxThreads)}};
}

std::string LinkProblem(const std::string& text) {
  const auto link = ParseLink(text);
  return link.ok() ? "" : std::string(link.status().message());
}

}  // namespace

ArgumentSyntax SetOption(std::vector<std::string>& sets) {
  return {.name = "--set",
          .value = "KEY=VALUE",
          .to = &sets,
          .help = "change a key of the recipe; may be repeated",
          .check = [](const std::string& set) {
            return set.find('=') == std::string::npos
                       ? "'" + set + "' is not of the form KEY=VALUE"
                       : "";
          }};
}

ArgumentSyntax DeviceOption(std::string& device, const std::string& unless) {
  return {
      .name = "--device",
      .value = "DEVICE",
      .to = &device,
      .help = "auto (a GPU where there is one), cpu or cuda (" + unless + ")",
      .choices = {"auto", "cpu", "cuda"}};
}

CommandSyntax TrainSyntax() {
  auto given = std::make_shared<TrainArguments>();
  std::vector<ArgumentSyntax> arguments = TrainArgumentList(*given);
  for (ArgumentSyntax& trace : TraceOptions(*given)) {
    arguments.push_back(std::move(trace));
  }
  return {.name = "train",
          .summary = "Train as a recipe says, also under mpirun",
          .examples = {"mpirun -np 2 delink train "
                       "recipes/quickstart_p2r.toml --out runs/p2r"},
          .arguments = std::move(arguments),
          .make = [given] { return MakeTrain(*given); }};
}

// Plans by a machine, by a trace, of a search; and what is printed.
std::vector<ArgumentSyntax> PlanSources(PlanCommand* plan) {
  return {
      {.name = "--machine",
       .value = "FILE",
       .to = &plan->machine,
       .help = "plan for the machine of this file, as in "
               "machines/ (this machine)",
       .names = Names::kFile,
       .must_exist = true},
      {.name = "--trace-out",
       .value = "FILE",
       .to = &plan->trace_out,
       .help = "write the simulated steps as a trace, as train "
               "--trace does",
       .names = Names::kFile,
       .needs = {"--machine"}},
      {.name = "--trace",
       .value = "FILE",
       .to = &plan->trace,
       .help = "compute the time of a step from a trace (train "
               "--trace)",
       .names = Names::kFile,
       .must_exist = true},
      {.name = "--delay",
       .value = "SECONDS,RATE",
       .to = &plan->delay,
       .help = "with links of this latency and this many bytes a "
               "second",
       .check = LinkProblem,
       .needs = {"--trace"}},
      {.name = "--bus",
       .value = "SECONDS,RATE",
       .to = &plan->bus,
       .help = "with a bus to host memory of this latency and "
               "this many bytes a second each way",
       .check = LinkProblem,
       .needs = {"--trace"}},
      {.name = "--program",
       .to = &plan->program,
       .help = "print the program of a step as well: "
               "docs/step-program.md"},
      {.name = "--search",
       .to = &plan->search,
       .help = "search the fastest layout on the --machine: "
               "docs/search.md"},
      {.name = "--stage",
       .value = "NAME",
       .to = &plan->stage,
       .help = "search that of this stage alone (of every stage)",
       .needs = {"--search"}},
      {.name = "--write",
       .value = "FILE",
       .to = &plan->write,
       .help = "write the recipe that the search found",
       .names = Names::kFile,
       .needs = {"--search"}},
      {.name = "--json", .to = &plan->json, .help = "print one JSON object"}};
}

CommandSyntax PlanSyntax() {
  struct Given {
    PlanCommand command;
    std::string device;
  };
  auto given = std::make_shared<Given>();
  PlanCommand* const plan = &given->command;
  std::vector<ArgumentSyntax> arguments = {
      RecipeArgument(plan->recipe),
      SetOption(plan->sets),
      {.name = "--ranks",
       .value = "N",
       .to = &plan->ranks,
       .help = "number of ranks to plan for (the recipe's, or 1)",
       .check = WholeNumber(1, 1 << 20)},
      {.name = "--ranks-per-node",
       .value = "M",
       .to = &plan->ranks_per_node,
       .help = "ranks on each machine (all on one)",
       .check = WholeNumber(1, 1 << 20)},
      DeviceOption(given->device, "the recipe's, or the machine's")};
  for (ArgumentSyntax& source : PlanSources(plan)) {
    arguments.push_back(std::move(source));
  }
  return {.name = "plan",
          .summary = "Print what a recipe needs, without training",
          .examples = {"delink plan recipes/gpt2_124m.toml --ranks 8",
                       "delink plan recipes/gpt2_124m.toml --ranks 16 "
                       "--ranks-per-node 8",
                       "delink plan recipes/gpt2_124m.toml --ranks 8 --machine "
                       "machines/b200.toml"},
          .arguments = std::move(arguments),
          .make = [given] {
            PlanCommand command = given->command;
            SetDevice(given->device, command.sets);
            return command;
          }};
}

}  // namespace delink::tools
