// The recipe inside a checkpoint of imported weights. Only its [model] is
// known.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "recipes/schema/model_config.h"

namespace delink::huggingface {

// A recipe with one step of one stage "imported", without sharing. Its corpus
// is a placeholder for the user to fill in. InvalidArgument, about `origin`:
// the config has values that no recipe of this kind may give.
absl::StatusOr<std::string> AsRecipe(const ModelConfig& config,
                                     const std::string& origin);

}  // namespace delink::huggingface
