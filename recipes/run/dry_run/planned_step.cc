#include "recipes/run/dry_run/planned_step.h"

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "framework/base/status_macros.h"
#include "framework/step/time/network_time.h"
#include "recipes/run/dry_run/imagined_stage.h"
#include "recipes/run/dry_run/known_rates.h"
#include "recipes/run/dry_run/machine_step.h"
#include "recipes/run/dry_run/pipeline_plan.h"

namespace delink {

absl::StatusOr<std::optional<PlannedStep>> PlanStep(const RunEnv& env,
                                                    size_t index) {
  const absl::StatusOr<KnownRates> rates =
      MeasuredRates(*env.device, *env.recipe);
  if (absl::IsInvalidArgument(rates.status())) return rates.status();
  if (!rates.ok()) return std::nullopt;
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<ImaginedStage> stage,
                          ImaginedStage::Create(env, index, 0));
  DELINK_ASSIGN_OR_RETURN(const PipelinePlan plan,
                          PlanPipeline(*stage, &*rates));
  const std::vector<int> nodes = env.NodesOfRanks();
  std::vector<int> all(nodes.size());
  std::iota(all.begin(), all.end(), 0);
  const PlannedMachine machine{.machine = *rates->machine,
                               .ranks = std::ssize(nodes),
                               .ranks_per_node = OnNodes(all, nodes).most};
  DELINK_ASSIGN_OR_RETURN(
      MachineStep step, SimulateStep({.plan = plan,
                                      .layout = stage->stage().store().layout(),
                                      .machine = machine,
                                      .nodes = nodes,
                                      .drains = !env.lane_threads},
                                     /*switches=*/false));
  return PlannedStep{.seconds = step.seconds, .lanes = std::move(step.lanes)};
}

}  // namespace delink
