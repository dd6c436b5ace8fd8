// Norms of gradients and weights, layer by layer: they show which layers learn.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/module/sequential.h"
#include "recipes/record/run_event.h"
#include "recipes/run/stage_run.h"

namespace delink {

// Of the step that the stage did last, and of the weights after it. Every
// parameter counts once: the squares of all gradients' norms add up to that of
// StepResult. Changes nothing of the run. Collective.
absl::StatusOr<NormsByLayer> MeasureNorms(StageRun& stage);

// What `layers` (ascending) are called together.
std::string NameOfLayers(const Sequential& model,
                         const std::vector<int>& layers);

}  // namespace delink
