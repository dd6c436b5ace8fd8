// A model that Delink does not have, for runs of one's own models.
#pragma once

#include "recipes/models/model_list.h"

namespace delink::testing {

// A hybrid in the place of gpt, whose recipes and parts it has: blocks with
// attention take turns with blocks that have an MLP.
ModelList Hybrids();

}  // namespace delink::testing
