// Sparse upcycling (arXiv 2212.05055): a model with experts that begins with
// the weights of a dense model. Each expert is a copy of its block's MLP, and
// the routers begin fresh.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/module/scope.h"
#include "recipes/models/moe_config.h"
#include "recipes/schema/model_config.h"

namespace delink {

// How a checkpoint with these tensors holds those of a model: where the model
// has experts and the checkpoint an MLP, the experts are copies of it. Empty if
// there is no such block. InvalidArgument, of one line: the model also has
// shared experts; its experts differ from the MLP in width or parameters (an
// MLP with biases); or the checkpoint has experts already, of another number.
absl::StatusOr<SavedAs> UpcyclingOf(const std::string& checkpoint,
                                    const std::vector<TensorInfo>& tensors,
                                    const ModelConfig& model,
                                    const ParamRegistry& registry);

// Whether equal experts give the output of one of them, up to rounding: a
// token's gates add up to 1, and no choice is dropped.
bool KeepsOutput(const MoeConfig& config);

}  // namespace delink
