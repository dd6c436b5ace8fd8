// What the sections of a recipe say of each other.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "recipes/schema/recipe.h"
#include "recipes/schema/section.h"

namespace delink::schema {

// "stage[1].depth"
std::string StageKey(size_t i, std::string_view key);

// Gives omitted values that follow from another section their value, and
// reports what does not fit together: stages that overlap, shares that do not
// divide the layers, sequences longer than the model takes. The recipe's
// sections have been read without a problem.
void Complete(Section& document, Recipe& recipe);

}  // namespace delink::schema
