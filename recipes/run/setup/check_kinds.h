// Checks that a checkpoint matches the recipe inside it.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "framework/checkpoint/checkpoint.h"
#include "recipes/schema/recipe.h"

namespace delink {

// Checks that the header of the checkpoint at `path` names the kinds of model
// and optimizer of `recipe`, the checkpoint's own.
absl::Status CheckKinds(const std::string& path, const CheckpointHeader& header,
                        const Recipe& recipe);

}  // namespace delink
