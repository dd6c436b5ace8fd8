// `delink plan`.
#include "framework/base/status_macros.h"
#include "framework/comm/link.h"
#include "parallel/launch/launcher.h"
#include "recipes/plan/plan.h"
#include "recipes/plan/pseudo_plan.h"
#include "tools/commands/commands.h"

namespace delink::tools {
namespace {

absl::StatusOr<RunPlan> MakePlan(const PlanCommand& command,
                                 const ModelList& models, World& world) {
  DELINK_ASSIGN_OR_RETURN(const int threads, UseCores(world, 0));
  // The environment applies to each rank.
  const bool told = ProcessEnvironment("OMP_NUM_THREADS").has_value();
  Link link;
  if (!command.delay.empty()) link = *ParseLink(command.delay);
  Link bus;
  if (!command.bus.empty()) bus = *ParseLink(command.bus);
  const PlanOptions options{.recipe = command.recipe,
                            .sets = command.sets,
                            .ranks = command.ranks,
                            .ranks_per_node = command.ranks_per_node,
                            .threads = told ? threads : 0,
                            .trace = command.trace,
                            .link = link,
                            .bus = bus,
                            .machine = command.machine,
                            .trace_out = command.trace_out};
  DELINK_ASSIGN_OR_RETURN(RunPlan plan, PlanRun(options, models));
  if (plan.machine.has_value()) FindPseudo(options, models, plan);
  FindPeak(plan);
  return plan;
}

}  // namespace

int Run(const PlanCommand& command, const ModelList& models, World& world) {
  const absl::Status alone = RequireOneProcess(world, "plan");
  if (!alone.ok()) return Finish(world, alone);
  const absl::StatusOr<RunPlan> plan = MakePlan(command, models, world);
  if (plan.ok()) {
    Print(command.json ? ToJson(*plan, command.program)
                       : ToText(*plan, command.program));
  }
  return Finish(world, plan.status());
}

}  // namespace delink::tools
