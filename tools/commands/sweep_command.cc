// `delink sweep`.
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/log.h"
#include "framework/base/status_macros.h"
#include "tools/commands/commands.h"
#include "tools/sweep/sweep.h"

namespace delink::tools {
namespace {

// The path of this program, since a user's own has models that `delink` lacks.
absl::StatusOr<std::string> OwnPath() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    return absl::InternalError(
        absl::StrCat("/proc/self/exe: cannot be read: ", error.message()));
  }
  return path.string();
}

// A word, quoted for a shell.
std::string Quoted(const std::string& word) {
  constexpr char kPlain[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
      "_-+=./:,@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
    return word;
  }
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

void PrintPlan(const SweepOptions& options, const SweepPlan& plan) {
  for (const sweep::GridRun& run : plan.runs) {
    Print(absl::StrJoin(CommandOf(options, plan, run), " ",
                        [](std::string* out, const std::string& word) {
                          out->append(Quoted(word));
                        }) +
          "\n");
  }
}

absl::StatusOr<SweepOutcome> DoSweep(const SweepCommand& command,
                                     const ModelList& models, World& world) {
  DELINK_RETURN_IF_ERROR(RequireOneProcess(world, "sweep"));
  DELINK_ASSIGN_OR_RETURN(const std::string program, OwnPath());
  const SweepOptions options{.spec = command.spec,
                             .sets = command.sets,
                             .out = command.out,
                             .jobs = command.jobs,
                             .program = {program, "train"}};
  DELINK_ASSIGN_OR_RETURN(const SweepPlan plan, PlanSweep(options, models));
  if (command.dry_run) {
    PrintPlan(options, plan);
    return SweepOutcome();
  }
  DELINK_ASSIGN_OR_RETURN(const SweepOutcome outcome,
                          RunSweep(options, plan, world));
  DELINK_LOG(kInfo) << outcome.finished << " runs finished, " << outcome.failed
                    << " failed; " << command.out << "/sweep.csv";
  return outcome;
}

}  // namespace

int Run(const SweepCommand& command, const ModelList& models, World& world) {
  const absl::StatusOr<SweepOutcome> outcome = DoSweep(command, models, world);
  if (!outcome.ok()) return Finish(world, outcome.status());
  if (outcome->signal != 0) return kExitSignal + outcome->signal;
  return outcome->failed == 0 ? 0 : kExitFailure;
}

}  // namespace delink::tools
