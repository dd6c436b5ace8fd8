// Prepares the folder of a run, after all checks.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "recipes/run/setup/beginning.h"
#include "recipes/run/setup/train_options.h"
#include "recipes/schema/recipe.h"

namespace delink {

// The folder that the options ask for.
std::string FolderOf(const TrainOptions& options);

// Prepares the folder `out`, which is locked (RunFolder::Take), for a run of
// this recipe: writes the recipe, sets aside checkpoints that are later than
// the one resumed from, and redirects the log to the folder. For rank 0.
absl::Status PrepareFolder(const TrainOptions& options, const std::string& out,
                           const Recipe& recipe, const Beginning& beginning);

}  // namespace delink
