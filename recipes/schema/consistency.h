// What the sections of a recipe say of each other.
#pragma once

#include "recipes/schema/recipe.h"
#include "recipes/schema/section.h"

namespace delink::schema {

// Gives omitted values that follow from another section their value, and
// reports what does not fit together: stages that overlap, shares that do not
// divide the layers, sequences longer than the model takes. The recipe's
// sections have been read without a problem.
void Complete(Section& document, Recipe& recipe);

}  // namespace delink::schema
