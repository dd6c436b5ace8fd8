// A model whose parts are of odd sizes and are declared in another order than
// layers use them, for runs whose weights are sharded.
#pragma once

#include "recipes/models/model_list.h"

namespace delink::testing {

// In the place of gpt, whose recipes and parts it has. Blocks declare what they
// use last first. Beside attention and MLP they have parts of 1, 3 and 29
// elements, which scale columns, so that shards of most data ranks are empty.
ModelList OddModels();

}  // namespace delink::testing
