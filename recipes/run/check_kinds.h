// That a checkpoint and the recipe inside it are of one model and optimizer.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "framework/checkpoint/checkpoint.h"
#include "recipes/schema/recipe.h"

namespace delink {

// That the header of the checkpoint at `path` is of the model and optimizer of
// the recipe that is in it.
absl::Status CheckKinds(const std::string& path, const CheckpointHeader& header,
                        const Recipe& recipe);

}  // namespace delink
