// The layout of each stage's ranks, and whether the model can be cut for it.
#pragma once

#include "recipes/schema/recipe.h"
#include "recipes/schema/section.h"

namespace delink::schema {

// For stages whose depths fit the model. Omitted keys of a layout take the
// value of the stage before. Reports a layout for which the model, its
// sequences or the layers of the stage before cannot be cut.
void CompleteParallel(Section& document, Recipe& recipe);

}  // namespace delink::schema
