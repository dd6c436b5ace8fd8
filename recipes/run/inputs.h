// What a run reads before it begins: its recipe and its corpora.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"
#include "recipes/models/model_list.h"
#include "recipes/run/pretrain.h"
#include "recipes/run/sources.h"
#include "recipes/schema/recipe.h"

namespace delink {

struct RunInputs {
  Recipe recipe;  // of these ranks, with the corpora's vocabulary
  Sources sources;
  // By stage in which a run would go on: why these ranks do not fit it or those
  // behind it. Stages that are not here they fit.
  std::vector<absl::Status> unfit = {};

  absl::Status FitsFrom(size_t stage) const {
    return stage < unfit.size() ? unfit[stage] : absl::OkStatus();
  }

  // A validation is on so many of each source.
  int64_t validation_sequences() const {
    return recipe.data.validation_batches * recipe.data.batch;
  }
  // What validations are made on (Sources::ValidatedOn).
  std::string ValidatedOn() const {
    return sources.ValidatedOn(validation_sequences());
  }
};

// InvalidArgument: the recipe or a corpus is wrong.
absl::StatusOr<RunInputs> ReadInputs(const TrainOptions& options,
                                     const ModelList& models, int ranks);

// Whether all ranks have read the same, and are to do the same: else they would
// train apart without a word, or wait for each other. Where the files lie may
// differ from machine to machine. Collective.
absl::Status AgreeOnInputs(Communicator& comm, const TrainOptions& options,
                           const RunInputs& inputs);

}  // namespace delink
