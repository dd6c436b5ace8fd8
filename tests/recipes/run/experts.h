// A model that cuts parameters over the expert axis, for runs over it.
#pragma once

#include <cstdint>

#include "recipes/models/model_list.h"

namespace delink::testing {

inline constexpr int64_t kExperts = 8;

// In the place of gpt, whose recipes and parts it has. Instead of an MLP a
// block has matrices [kExperts, 2, dim] and gains [kExperts, 1], both cut over
// experts, and multiplies its input by a sum over all of them, each with a
// factor of its own. Ranks gather them within a visit and reduce-scatter their
// gradients, so that one rank and several have the same bits where a step is
// one visit of each layer.
ModelList ModelsWithExperts();

}  // namespace delink::testing
