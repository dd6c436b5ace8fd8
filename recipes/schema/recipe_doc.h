// docs/recipe.md and docs/machines.md, from the schema.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "recipes/schema/model_config.h"

namespace delink {

// The page in Markdown: every key of every section and of every kind of model,
// after `example`, a whole recipe.
std::string RecipeDoc(const std::vector<ModelKind>& kinds,
                      std::string_view example);

// The page of machine files: every key.
std::string MachineDoc();

}  // namespace delink
