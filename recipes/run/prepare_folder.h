// The folder of a run, made ready once everything has been checked.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "recipes/run/beginning.h"
#include "recipes/run/pretrain.h"
#include "recipes/schema/recipe.h"

namespace delink {

// Where the options want it.
std::string FolderOf(const TrainOptions& options);

// Makes the folder `out`, which is taken (RunFolder::Take), that of a run of
// this recipe: the recipe is written, what is left behind by the checkpoint
// that the run goes on from is set aside, and the log goes there from now on.
// For rank 0.
absl::Status PrepareFolder(const TrainOptions& options, const std::string& out,
                           const Recipe& recipe, const Beginning& beginning);

}  // namespace delink
