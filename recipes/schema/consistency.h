// Checks the sections of a recipe against each other.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "recipes/schema/recipe.h"
#include "recipes/schema/section.h"

namespace delink::schema {

// "stage[1].depth"
std::string StageKey(size_t i, std::string_view key);

// Resolves omitted values that follow from another section. Reports what does
// not fit together: stages that overlap, shares that do not divide the layers,
// sequences longer than the model takes. Call it only if all sections were read
// without a problem.
void Complete(Section& document, Recipe& recipe);

}  // namespace delink::schema
