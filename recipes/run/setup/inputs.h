// What a run reads before it begins: its recipe and its corpora.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"
#include "recipes/models/model_list.h"
#include "recipes/run/setup/sources.h"
#include "recipes/run/setup/train_options.h"
#include "recipes/schema/recipe.h"

namespace delink {

struct RunInputs {
  Recipe recipe;  // fitted to the ranks, with the corpora's vocabulary
  Sources sources;
  // Indexed by the stage in which a run would continue: why the ranks do not
  // fit that stage or a later one. The ranks fit from any stage beyond the end.
  std::vector<absl::Status> unfit = {};

  absl::Status FitsFrom(size_t stage) const {
    return stage < unfit.size() ? unfit[stage] : absl::OkStatus();
  }

  // Sequences of each source that a validation reads.
  int64_t validation_sequences() const {
    return recipe.data.validation_batches * recipe.data.batch;
  }
  // The data that validations read (Sources::ValidatedOn).
  std::string ValidatedOn() const {
    return sources.ValidatedOn(validation_sequences());
  }
};

// InvalidArgument: the recipe or a corpus is wrong.
absl::StatusOr<RunInputs> ReadInputs(const TrainOptions& options,
                                     const ModelList& models, int ranks);

// Checks that all ranks have read the same inputs and have the same options.
// Otherwise they would silently diverge, or wait for each other. The paths of
// files may differ between machines. Collective.
absl::Status AgreeOnInputs(Communicator& comm, const TrainOptions& options,
                           const RunInputs& inputs);

}  // namespace delink
