// Norms of gradients and weights, layer by layer: they show which layers learn.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/module/sequential.h"
#include "recipes/run/stage_run.h"

namespace delink {

struct NormsByLayer {
  // "embed", "blocks/0", ..., "head". What layers share has an entry of its
  // own, called after all of them: "blocks/0..11", "embed,head".
  std::vector<std::string> layers;
  std::vector<double> gradient;  // of the mean loss, before clipping
  std::vector<double> weight;
};

// Of the step that the stage did last, and of the weights after it. Every
// parameter counts once: the squares of all gradients' norms add up to that of
// StepResult. Changes nothing of the run. Collective.
absl::StatusOr<NormsByLayer> MeasureNorms(StageRun& stage);

// What `layers` (ascending) are called together.
std::string NameOfLayers(const Sequential& model,
                         const std::vector<int>& layers);

}  // namespace delink
