// What the depths of stages have to do with each other, and with what is
// shared.
#pragma once

#include <cstddef>

#include "recipes/schema/recipe.h"
#include "recipes/schema/section.h"

namespace delink::schema {

// Of a stage whose share fits the model: its depth is one of the model's, every
// set that shares has a block that is visited, and gradients are compared where
// blocks share.
void CheckDepth(Section& document, const Recipe& recipe, size_t stage);

// Of a stage against the one before it, where the depths of both fit the model.
void CheckGrowth(Section& document, const Recipe& recipe, size_t stage);

}  // namespace delink::schema
