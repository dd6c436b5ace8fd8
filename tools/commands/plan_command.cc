// `delink plan`.
#include <chrono>
#include <string>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/log.h"
#include "framework/base/status_macros.h"
#include "framework/comm/link.h"
#include "parallel/launch/launcher.h"
#include "recipes/plan/plan.h"
#include "recipes/plan/pseudo_plan.h"
#include "recipes/plan/search.h"
#include "recipes/schema/recipe_io.h"
#include "tools/commands/commands.h"

namespace delink::tools {
namespace {

absl::StatusOr<PlanOptions> OptionsOf(const PlanCommand& command,
                                      World& world) {
  DELINK_ASSIGN_OR_RETURN(const int threads, UseCores(world, 0));
  // The environment applies to each rank.
  const bool told = ProcessEnvironment("OMP_NUM_THREADS").has_value();
  Link link;
  if (!command.delay.empty()) link = *ParseLink(command.delay);
  Link bus;
  if (!command.bus.empty()) bus = *ParseLink(command.bus);
  return PlanOptions{.recipe = command.recipe,
                     .sets = command.sets,
                     .ranks = command.ranks,
                     .ranks_per_node = command.ranks_per_node,
                     .threads = told ? threads : 0,
                     .trace = command.trace,
                     .link = link,
                     .bus = bus,
                     .machine = command.machine,
                     .trace_out = command.trace_out};
}

absl::StatusOr<std::string> PlanText(const PlanCommand& command,
                                     const ModelList& models, World& world) {
  DELINK_ASSIGN_OR_RETURN(const PlanOptions options, OptionsOf(command, world));
  DELINK_ASSIGN_OR_RETURN(RunPlan plan, PlanRun(options, models));
  if (plan.machine.has_value()) FindPseudo(options, models, plan);
  FindPeak(plan);
  return command.json ? ToJson(plan, command.program)
                      : ToText(plan, command.program);
}

// At most one line in some seconds.
class ProgressLine {
 public:
  void Say(const std::string& text) {
    const auto now = Clock::now();
    if (now - last_ < kPause) return;
    last_ = now;
    DELINK_LOG(kInfo) << text;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kPause = std::chrono::seconds(10);
  Clock::time_point last_ = Clock::now();
};

absl::StatusOr<std::string> SearchText(const PlanCommand& command,
                                       const ModelList& models, World& world) {
  if (!command.trace.empty() || command.program) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--search goes without ", command.program ? "--program" : "--trace"));
  }
  DELINK_ASSIGN_OR_RETURN(const PlanOptions options, OptionsOf(command, world));
  ProgressLine line;
  DELINK_ASSIGN_OR_RETURN(
      const RunSearch search,
      SearchRun({.plan = options,
                 .stage = command.stage,
                 .progress = [&](const std::string& text) { line.Say(text); }},
                models));
  if (!command.write.empty()) {
    DELINK_RETURN_IF_ERROR(
        WriteFileAtomically(command.write, ToToml(search.recipe)));
  }
  return command.json ? ToJson(search) : ToText(search);
}

}  // namespace

int Run(const PlanCommand& command, const ModelList& models, World& world) {
  const absl::Status alone = RequireOneProcess(world, "plan");
  if (!alone.ok()) return Finish(world, alone);
  const absl::StatusOr<std::string> text =
      command.search ? SearchText(command, models, world)
                     : PlanText(command, models, world);
  if (text.ok()) Print(*text);
  return Finish(world, text.status());
}

}  // namespace delink::tools
