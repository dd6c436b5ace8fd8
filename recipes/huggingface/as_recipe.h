// The recipe that a checkpoint carries whose weights come from elsewhere: its
// [model] is all that is known.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "recipes/schema/model_config.h"

namespace delink::huggingface {

// A recipe of one step of one stage "imported", which shares nothing. The
// corpus is one that a reader is to put there. InvalidArgument, said of
// `origin`: what no recipe of this kind may say of a model.
absl::StatusOr<std::string> AsRecipe(const ModelConfig& config,
                                     const std::string& origin);

}  // namespace delink::huggingface
