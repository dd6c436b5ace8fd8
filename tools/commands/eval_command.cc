// `delink eval`.
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"
#include "recipes/saved/evaluate.h"
#include "recipes/saved/evaluate_choices.h"
#include "recipes/saved/loglikelihood.h"
#include "tools/commands/commands.h"

namespace delink::tools {
namespace {

DType DTypeOf(const Eval& command) {
  return command.precision == "bf16" ? DType::kBF16 : DType::kF32;
}

// Collective.
absl::Status CheckLines(const Eval& command, World& world) {
  const std::string& path = command.lines;
  absl::Status status;
  if (world.rank() == 0 && !path.empty() && PathExists(path)) {
    status = absl::AlreadyExistsError(
        absl::StrCat("--lines: ", path, ": exists; choose another file"));
  }
  return AgreeOnStatus(world.comm(), status);
}

// Writes the result of `lines` if it is requested. Collective.
absl::Status WriteLines(const Eval& command, World& world,
                        const std::function<std::string()>& lines) {
  absl::Status status;
  if (world.rank() == 0 && !command.lines.empty()) {
    status = WriteFileAtomically(command.lines, lines());
  }
  return AgreeOnStatus(world.comm(), status);
}

absl::StatusOr<std::string> EvaluateData(const Eval& command,
                                         const ModelList& models, World& world,
                                         EvaluateOptions options) {
  options.checkpoint = command.checkpoint;
  options.sets = command.sets;
  options.data = command.data;
  options.batches = command.batches;
  options.dtype = DTypeOf(command);
  DELINK_ASSIGN_OR_RETURN(const Evaluation result,
                          Evaluate(options, models, world.comm()));
  return command.json ? ToJson(result) : ToText(result);
}

absl::StatusOr<std::string> EvaluateFile(const Eval& command,
                                         const ModelList& models, World& world,
                                         ChoicesOptions options) {
  options.checkpoint = command.checkpoint;
  options.sets = command.sets;
  options.choices = command.choices;
  options.delimiter = command.delimiter;
  options.dtype = DTypeOf(command);
  DELINK_RETURN_IF_ERROR(CheckLines(command, world));
  DELINK_ASSIGN_OR_RETURN(const ChoiceEvaluation result,
                          EvaluateChoices(options, models, world.comm()));
  DELINK_RETURN_IF_ERROR(
      WriteLines(command, world, [&] { return ToJsonLines(result); }));
  return command.json ? ToJson(result) : ToText(result);
}

absl::StatusOr<std::string> EvaluateTexts(const Eval& command,
                                          const ModelList& models, World& world,
                                          LoglikelihoodOptions options) {
  options.checkpoint = command.checkpoint;
  options.sets = command.sets;
  options.pairs = command.loglikelihood;
  options.dtype = DTypeOf(command);
  DELINK_RETURN_IF_ERROR(CheckLines(command, world));
  DELINK_ASSIGN_OR_RETURN(const LoglikelihoodEvaluation result,
                          EvaluateLoglikelihood(options, models, world.comm()));
  DELINK_RETURN_IF_ERROR(
      WriteLines(command, world, [&] { return ToJsonLines(result); }));
  return command.json ? ToJson(result) : ToText(result);
}

}  // namespace

int Run(const Eval& command, const ModelList& models, World& world) {
  const absl::StatusOr<int> threads = UseCores(world, 0);
  absl::Status status = AgreeOnStatus(world.comm(), threads.status());
  if (status.ok() && command.data.empty() && command.choices.empty() &&
      command.loglikelihood.empty()) {
    status = absl::InvalidArgumentError(
        "delink eval: give --data, --choices or --loglikelihood");
  }
  if (!status.ok()) return Finish(world, status);
  const auto device = [&](const Recipe& recipe) {
    return DeviceFor(command.device, recipe, world);
  };
  const auto evaluate = [&]() -> absl::StatusOr<std::string> {
    if (!command.data.empty()) {
      return EvaluateData(command, models, world, {.device = device});
    }
    if (!command.choices.empty()) {
      return EvaluateFile(command, models, world, {.device = device});
    }
    return EvaluateTexts(command, models, world, {.device = device});
  };
  const absl::StatusOr<std::string> said = evaluate();
  if (said.ok() && world.rank() == 0) Print(*said);
  return Finish(world, said.status());
}

}  // namespace delink::tools
