// What a run and the plan of a run make alike from a recipe, before any memory
// is taken.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/corpus/corpus.h"
#include "recipes/run/stage_run.h"
#include "recipes/schema/recipe.h"

namespace delink {

// The recipe with the corpus's vocabulary where it names none. InvalidArgument:
// it names one that is too small.
absl::StatusOr<Recipe> FitVocab(const Recipe& recipe, const Corpus& corpus);

// Whether every stage's share fits the model and the groups of
// hyper-parameters, and only cuts links of the stage before.
absl::Status CheckStages(const RunEnv& env);

}  // namespace delink
