// `--set` of those who use a checkpoint: of its recipe only how ranks have the
// weights together may be another, that is tensor and pipeline of the stage
// that the checkpoint is of.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "recipes/schema/recipe.h"

namespace delink {

// Sets them in order: "stage.1.parallel.tensor=2", or
// "stage.1.parallel={tensor=2}", where what is left out is 1. InvalidArgument:
// any other key, stage or value.
absl::Status SetLayout(const std::vector<std::string>& sets, size_t stage,
                       ParallelConfig& parallel);

}  // namespace delink
