// Checks the depths of stages against each other and against what blocks share.
#pragma once

#include <cstddef>

#include "recipes/schema/recipe.h"
#include "recipes/schema/section.h"

namespace delink::schema {

// For a stage whose share fits the model. Reports a depth that the model cannot
// have, a sharing set without a visited block, and a comparison of gradients
// where no blocks share.
void CheckDepth(Section& document, const Recipe& recipe, size_t stage);

// Checks a stage against the one before it, if both depths fit the model.
void CheckGrowth(Section& document, const Recipe& recipe, size_t stage);

}  // namespace delink::schema
