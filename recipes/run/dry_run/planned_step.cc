#include "recipes/run/dry_run/planned_step.h"

#include <memory>
#include <utility>

#include "framework/base/status_macros.h"
#include "recipes/run/dry_run/find_homes.h"
#include "recipes/run/dry_run/imagined_stage.h"
#include "recipes/run/dry_run/known_rates.h"

namespace delink {

absl::StatusOr<std::optional<PlannedStep>> PlanStep(const RunEnv& env,
                                                    size_t index) {
  const absl::StatusOr<KnownRates> rates =
      MeasuredRates(*env.device, *env.recipe);
  if (!rates.ok()) return std::nullopt;
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<ImaginedStage> stage,
                          ImaginedStage::Create(env, index, 0));
  DELINK_ASSIGN_OR_RETURN(ForeseenStage foreseen, ForeseeStage(*stage, *rates));
  return PlannedStep{.seconds = foreseen.step.seconds,
                     .lanes = std::move(foreseen.step.ranks.front())};
}

}  // namespace delink
