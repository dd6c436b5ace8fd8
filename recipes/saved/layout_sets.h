// `--set` of those who use a checkpoint: of its recipe only where the weights
// are may be another, for the stage that the checkpoint is of: how ranks have
// them together, by tensor and pipeline, and which are at home on the host.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "recipes/schema/recipe.h"

namespace delink {

struct SavedSets {
  std::vector<std::string> parallel, offload;  // of these keys of the stage
};

// InvalidArgument: any other key or stage.
absl::StatusOr<SavedSets> SortSets(const std::vector<std::string>& sets,
                                   size_t stage);

// Sets those of `parallel` in order: "stage.1.parallel.tensor=2", or
// "stage.1.parallel={tensor=2}", where what is left out is 1. InvalidArgument:
// any other key of it, or value.
absl::Status SetParallel(const std::vector<std::string>& sets, size_t stage,
                         ParallelConfig& parallel);

}  // namespace delink
