// `delink eval`.
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"
#include "recipes/saved/evaluate.h"
#include "recipes/saved/evaluate_choices.h"
#include "tools/commands/commands.h"

namespace delink::tools {
namespace {

DType DTypeOf(const Eval& command) {
  return command.precision == "bf16" ? DType::kBF16 : DType::kF32;
}

absl::Status CheckLines(const std::string& path) {
  if (path.empty() || !PathExists(path)) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("--lines: ", path, ": is there; choose another file"));
}

absl::StatusOr<std::string> EvaluateData(const Eval& command,
                                         const ModelList& models, World& world,
                                         EvaluateOptions options) {
  options.checkpoint = command.checkpoint;
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
  options.choices = command.choices;
  options.delimiter = command.delimiter;
  options.dtype = DTypeOf(command);
  absl::Status status;
  if (world.rank() == 0) status = CheckLines(command.lines);
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(world.comm(), status));
  DELINK_ASSIGN_OR_RETURN(const ChoiceEvaluation result,
                          EvaluateChoices(options, models, world.comm()));
  if (world.rank() == 0 && !command.lines.empty()) {
    status = WriteFileAtomically(command.lines, ToJsonLines(result));
  }
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(world.comm(), status));
  return command.json ? ToJson(result) : ToText(result);
}

}  // namespace

int Run(const Eval& command, const ModelList& models, World& world) {
  const absl::StatusOr<int> threads = UseCores(world, 0);
  absl::Status status = AgreeOnStatus(world.comm(), threads.status());
  if (status.ok() && command.data.empty() == command.choices.empty()) {
    status = absl::InvalidArgumentError(
        "delink eval: give either --data or --choices");
  }
  if (!status.ok()) return Finish(world, status);
  const auto device = [&](const Recipe& recipe) {
    return DeviceFor(command.device, recipe, world);
  };
  const absl::StatusOr<std::string> said =
      command.data.empty()
          ? EvaluateFile(command, models, world, {.device = device})
          : EvaluateData(command, models, world, {.device = device});
  if (said.ok() && world.rank() == 0) Print(*said);
  return Finish(world, said.status());
}

}  // namespace delink::tools
