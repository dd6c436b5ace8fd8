// The layouts and forms that a search tries for a stage, and whether a recipe
// may have them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "offload/plan/offload_rules.h"
#include "recipes/run/stage/stage_run.h"
#include "recipes/schema/recipe.h"

namespace delink {

// What a search chooses for a stage. All other keys stay as the recipe has
// them, except that `layers` is cut by cost, and `reduce` is "step".
struct StageForm {
  ParallelConfig parallel;
  int64_t micro_batch = 1;
  Recompute recompute = Recompute::kNone;
  OffloadRules offload;
};

// The recipe up to stage `index`, in that form: later stages do not matter to
// it.
Recipe WithForm(const Recipe& recipe, size_t index, const StageForm& form);

// Every mesh of `ranks`: data, context, pipeline and expert ranks as the
// divisors allow, the fewest tensor ranks first. Without experts in the model
// (`experts`), expert is 1.
std::vector<ParallelConfig> MeshesOf(const ParallelConfig& given, int64_t ranks,
                                     bool experts);

// For a mesh: schedules (interleaved with 2, 4 and 8 chunks), micro-batches
// (all divisors of a rank's sequences up to 32), `sequence` on or off,
// and dispatches, "deduplicated" if the experts are on several nodes.
// `recipe` has the mesh in stage `index`.
std::vector<StageForm> CoresOf(const Recipe& recipe, size_t index,
                               const std::vector<int>& nodes);

// For a core: zero = 0 if no ranks share slabs; else 1, 2, 3, and 3 with
// weights sharded within a node. With `whole`, also 0 (search.h, rule 2).
std::vector<StageForm> ShardedFormsOf(const StageForm& core, bool whole,
                                      int64_t per_node);

// The recipe up to stage `index` in the form, fitted to the ranks, or the error
// that `train` would give: all checks of recipes, worlds and models apply.
absl::StatusOr<Recipe> FitForm(const RunEnv& env, size_t index,
                               const StageForm& form);

// "parallel.tensor" of the error of FitForm; and its text without position.
std::string KeyOfError(const absl::Status& error);
std::string TextOfError(const absl::Status& error);

// "tensor 8 x data 4 x pipeline 16; interleaved, 2 chunks; micro_batch 1; ...".
std::string ToString(const StageForm& form);

}  // namespace delink
