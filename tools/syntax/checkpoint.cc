#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tools/syntax/commands.h"

namespace delink::tools {
namespace {

constexpr char kDeviceUnless[] = "as the checkpoint's recipe says";

ArgumentSyntax CheckpointArgument(std::string& checkpoint) {
  return {.name = "CHECKPOINT",
          .to = &checkpoint,
          .help = kCheckpointHelp,
          .names = Names::kPath,
          .must_exist = true};
}

ArgumentSyntax JsonFlag(bool& json) {
  return {.name = "--json", .to = &json, .help = "print one JSON object"};
}

// The arguments of `delink delink`, before they are converted to their types.
struct DelinkArguments {
  DelinkCommand command;
  std::string share;
  std::string state;
  int64_t depth = 0;  // 0: not given
  std::string grow;
  int64_t experts = 0, top_k = 0;  // 0: not given
  std::vector<std::string> sets;
};

Command MakeDelink(const DelinkArguments& given) {
  DelinkCommand command = given.command;
  if (!given.share.empty()) command.share = *ParseShareSpec(given.share);
  for (const StatePolicy policy :
       {StatePolicy::kReset, StatePolicy::kCopy, StatePolicy::kScale,
        StatePolicy::kCalibrated}) {
    if (given.state == ToString(policy)) command.state = policy;
  }
  if (given.depth > 0) command.depth = given.depth;
  for (const GrowPolicy policy : {GrowPolicy::kCopy, GrowPolicy::kCycle,
                                  GrowPolicy::kRandom, GrowPolicy::kZero}) {
    if (given.grow == ToString(policy)) command.grow = policy;
  }
  if (given.experts > 0) {
    command.upcycle = {.experts = given.experts, .sets = given.sets};
    if (given.top_k > 0) command.upcycle->top_k = given.top_k;
  }
  return command;
}

std::vector<ArgumentSyntax> DelinkArgumentList(DelinkArguments& given) {
  return {CheckpointArgument(given.command.checkpoint),
          {.name = "OUT",
           .to = &given.command.out,
           .help = "a new folder; the checkpoint becomes OUT/step-NNNNNNNN",
           .names = Names::kFolder},
          {.name = "--share",
           .value = "SPEC",
           .to = &given.share,
           .help = "what stays shared: none, all, groups:N, cycle:N, or by "
                   "part as attention=all,mlp=groups:4 (the recipe's next "
                   "stage's, or none)",
           .check =
               [](const std::string& text) {
                 const auto spec = ParseShareSpec(text);
                 return spec.ok() ? "" : std::string(spec.status().message());
               }},
          {.name = "--state",
           .value = "POLICY",
           .to = &given.state,
           .help = "optimizer state: reset, copy or scale (the recipe's next "
                   "stage's, or scale)",
           // The fourth is accepted here; a later error explains the refusal.
           .choices = {"reset", "copy", "scale", "calibrated"}},
          {.name = "--depth",
           .value = "N",
           .to = &given.depth,
           .help = "visit N blocks; missing blocks are added (as many as the "
                   "recipe's next stage visits, or as there are)",
           .check = WholeNumber(1)},
          {.name = "--grow",
           .value = "HOW",
           .to = &given.grow,
           .help = "initial values of added blocks: copy, cycle, random or "
                   "zero (the recipe's next stage's, or copy)",
           .choices = {"copy", "cycle", "random", "zero"}}};
}

// Those of upcycling.
std::vector<ArgumentSyntax> UpcycleOptionList(DelinkArguments& given) {
  ArgumentSyntax set = SetOption(given.sets);
  set.help =
      "change a key of the model with experts, as "
      "model.router.aux_loss=1e-3; may be repeated";
  set.needs = {"--experts"};
  return {{.name = "--experts",
           .value = "E",
           .to = &given.experts,
           .help = "make each block's MLP a mixture of E experts that are "
                   "copies of it, with a fresh router",
           .check = WholeNumber(1, 1 << 20)},
          {.name = "--top-k",
           .value = "K",
           .to = &given.top_k,
           .help = "experts that each token goes to (2, or all of fewer)",
           .check = WholeNumber(1, 1 << 20),
           .needs = {"--experts"}},
          {.name = "--noise",
           .value = "X",
           .to = &given.command.noise,
           .help = "add Gaussian noise to the experts' weights, of X standard "
                   "deviations of each matrix (0)",
           .check = Number(0, 1000),
           .needs = {"--experts"}},
          set};
}

// The option for the placement of weights.
ArgumentSyntax WeightsOption(std::vector<std::string>& sets) {
  ArgumentSyntax option = SetOption(sets);
  option.help =
      "place the weights: on several ranks under mpirun by "
      "stage.N.parallel.tensor=2 or stage.N.parallel.zero=3, experts by "
      "stage.N.parallel.expert=2, in host memory by "
      "stage.N.offload.weights=host (as in the checkpoint's recipe)";
  return option;
}

std::vector<ArgumentSyntax> EvalArgumentList(Eval& eval) {
  return {CheckpointArgument(eval.checkpoint),
          {.name = "--data",
           .value = "DIR",
           .to = &eval.data,
           .help = "a corpus folder: loss and perplexity",
           .names = Names::kFolder,
           .must_exist = true,
           .excludes = {"--choices", "--loglikelihood"}},
          WeightsOption(eval.sets),
          {.name = "--batches",
           .value = "N",
           .to = &eval.batches,
           .help = "use the first N batches of the recipe's size (all)",
           .check = WholeNumber(1),
           .needs = {"--data"}},
          {.name = "--choices",
           .value = "FILE",
           .to = &eval.choices,
           .help = "multiple-choice questions, a JSON object a line "
                   "(question, options, answer): accuracy",
           .names = Names::kFile,
           .must_exist = true,
           .excludes = {"--loglikelihood"}},
          {.name = "--loglikelihood",
           .value = "FILE",
           .to = &eval.loglikelihood,
           .help = "texts, a JSON object a line (context and continuation, or "
                   "text): log-likelihood, and whether it is greedy",
           .names = Names::kFile,
           .must_exist = true},
          {.name = "--delimiter",
           .value = "TEXT",
           .to = &eval.delimiter,
           .help = "text between a question and its options (a space)",
           .needs = {"--choices"}},
          {.name = "--lines",
           .value = "FILE",
           .to = &eval.lines,
           .help = "write the result of each question or text to a new file, a "
                   "JSON object a line",
           .names = Names::kFile,
           .excludes = {"--data"}},
          {.name = "--precision",
           .value = "PRECISION",
           .to = &eval.precision,
           .help = "fp32 or bf16 (fp32)",
           .choices = {"fp32", "bf16"}},
          DeviceOption(eval.device, kDeviceUnless),
          JsonFlag(eval.json)};
}

std::vector<ArgumentSyntax> GenerateArgumentList(Generate& generate) {
  return {
      CheckpointArgument(generate.checkpoint),
      {.name = "--prompt",
       .value = "TEXT",
       .to = &generate.prompt,
       .help = "the text to continue",
       .or_else = "--prompts",
       .excludes = {"--prompts"}},
      {.name = "--prompts",
       .value = "FILE",
       .to = &generate.prompts,
       .help = "prompts to continue, a JSON object a line (prompt; also until, "
               "tokens and the options below); prints one object for each",
       .names = Names::kFile,
       .must_exist = true},
      WeightsOption(generate.sets),
      {.name = "--tokens",
       .value = "N",
       .to = &generate.tokens,
       .help = "number of tokens to generate (128)",
       .check = WholeNumber(1)},
      {.name = "--temperature",
       .value = "T",
       .to = &generate.temperature,
       .help = "below 1 more certain, above 1 more varied, 0 always the "
               "likeliest token (1)",
       .check = Number(0, std::numeric_limits<double>::infinity())},
      {.name = "--top-k",
       .value = "K",
       .to = &generate.top_k,
       .help = "draw from the K likeliest tokens (all)",
       .check = WholeNumber(1)},
      {.name = "--top-p",
       .value = "P",
       .to = &generate.top_p,
       .help = "draw from the likeliest tokens that together reach "
               "probability P (1)",
       .check = Number(1e-9, 1)},
      {.name = "--seed",
       .value = "S",
       .to = &generate.seed,
       .help = "the same seed draws the same text (1)",
       .check = WholeNumber(0)},
      DeviceOption(generate.device, kDeviceUnless)};
}

}  // namespace

CommandSyntax DelinkSyntax() {
  auto given = std::make_shared<DelinkArguments>();
  std::vector<ArgumentSyntax> arguments = DelinkArgumentList(*given);
  for (ArgumentSyntax& option : UpcycleOptionList(*given)) {
    arguments.push_back(std::move(option));
  }
  return {.name = "delink",
          .summary = "Delink a checkpoint's layers, add blocks or experts",
          .examples = {"delink delink runs/p2r runs/real-start",
                       "delink train recipe.toml --out runs/real "
                       "--resume=runs/real-start",
                       "delink delink runs/dense runs/moe-start --experts 8 "
                       "--top-k 2"},
          .arguments = std::move(arguments),
          .make = [given] { return MakeDelink(*given); }};
}

CommandSyntax InspectSyntax() {
  auto inspect = std::make_shared<Inspect>();
  return {.name = "inspect",
          .summary = "Show a checkpoint: step, stage, tensors, sharing",
          .examples = {"delink inspect runs/p2r"},
          .arguments = {CheckpointArgument(inspect->checkpoint),
                        JsonFlag(inspect->json)},
          .make = [inspect] { return *inspect; }};
}

CommandSyntax EvalSyntax() {
  auto eval = std::make_shared<Eval>();
  return {.name = "eval",
          .summary = "Evaluate a checkpoint on a corpus, choices or texts",
          .examples = {"delink eval runs/p2r --data corpus/validation",
                       "delink eval runs/p2r --choices questions.jsonl",
                       "delink eval runs/p2r --loglikelihood pairs.jsonl "
                       "--lines scores.jsonl"},
          .arguments = EvalArgumentList(*eval),
          .make = [eval] { return *eval; }};
}

CommandSyntax GenerateSyntax() {
  auto generate = std::make_shared<Generate>();
  return {.name = "generate",
          .summary = "Continue a text, token by token",
          .examples = {"delink generate runs/p2r --prompt 'In the beginning' "
                       "--tokens 100 --top-k 40",
                       "delink generate runs/p2r --prompts prompts.jsonl "
                       "--temperature 0 > texts.jsonl"},
          .arguments = GenerateArgumentList(*generate),
          .make = [generate] { return *generate; }};
}

}  // namespace delink::tools
