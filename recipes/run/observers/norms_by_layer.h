// Norms of gradients and weights, layer by layer: they show which layers learn.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "recipes/record/run_event.h"
#include "recipes/run/stage/stage_run.h"

namespace delink {

// Norms of the last step's gradients and of the weights after it. Every
// parameter counts once: the squares of all gradient norms add up to the square
// of StepResult's. Does not change the run. Collective.
absl::StatusOr<NormsByLayer> MeasureNorms(StageRun& stage);

}  // namespace delink
