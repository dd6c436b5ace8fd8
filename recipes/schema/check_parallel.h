// How the ranks of stages are laid out, and whether the model can be cut so.
#pragma once

#include "recipes/schema/recipe.h"
#include "recipes/schema/section.h"

namespace delink::schema {

// Of stages whose depths fit the model: gives what they omit of their layout
// the value of the stage before, and reports one that the model, its sequences
// or the layers of the stage before cannot be cut for.
void CompleteParallel(Section& document, Recipe& recipe);

}  // namespace delink::schema
