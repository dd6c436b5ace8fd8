// `delink plan`.
#include "recipes/plan/plan.h"
#include "tools/commands/commands.h"

namespace delink::tools {

int Run(const PlanCommand& command, const ModelList& models, World& world) {
  const absl::Status alone = RequireOneProcess(world, "plan");
  if (!alone.ok()) return Finish(world, alone);
  const auto plan = PlanRun(
      {.recipe = command.recipe, .sets = command.sets, .ranks = command.ranks},
      models);
  if (plan.ok()) {
    Print(command.json ? ToJson(*plan, command.program)
                       : ToText(*plan, command.program));
  }
  return Finish(world, plan.status());
}

}  // namespace delink::tools
