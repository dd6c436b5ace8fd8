#include "recipes/run/dry_run/planned_step.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "framework/base/status_macros.h"
#include "recipes/run/dry_run/imagined_stage.h"
#include "recipes/run/dry_run/known_rates.h"
#include "recipes/run/dry_run/machine_step.h"
#include "recipes/run/dry_run/pipeline_plan.h"
#include "recipes/run/stage/nodes.h"

namespace delink {
namespace {

// Of the node that has most of them.
int64_t RanksPerNode(const std::vector<int>& nodes) {
  int64_t most = 0;
  for (const int node : nodes) {
    most = std::max<int64_t>(most, std::ranges::count(nodes, node));
  }
  return most;
}

}  // namespace

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
  const int ranks = env.world->size();
  const std::vector<int> nodes =
      env.nodes.empty() ? NodesOf(ranks, 0) : env.nodes;
  const PlannedMachine machine{.machine = *rates->machine,
                               .ranks = ranks,
                               .ranks_per_node = RanksPerNode(nodes)};
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
