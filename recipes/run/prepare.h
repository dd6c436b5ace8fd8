// What a run and the plan of a run make alike from a recipe, before any memory
// is taken.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/corpus/corpus.h"
#include "recipes/models/model_list.h"
#include "recipes/run/stage_run.h"
#include "recipes/schema/recipe.h"

namespace delink {

// The recipe with the corpus's vocabulary where it names none. InvalidArgument:
// it names one that is too small.
absl::StatusOr<Recipe> FitVocab(const Recipe& recipe, const Corpus& corpus);

// Whether the stage's tensor ranks can share the model's parameters. A model of
// one's own need not say how it can be cut (ModelConfig::cuts), they do.
absl::Status CheckCut(const Recipe& recipe, const ParamRegistry& registry,
                      size_t stage);

// Whether each row of the stage's `offload` says something of a parameter.
absl::Status CheckOffload(const Recipe& recipe, const ParamRegistry& registry,
                          size_t stage);

// Whether lanes but compute have a thread on ranks of so many threads: where
// compute has several; in a pipeline, where something is under way nearly
// always, and it is big messages that somebody must come by for; and where
// copies between homes and the host's updates go on beside compute.
bool HasLaneThread(const Recipe& recipe, int threads);

// A recipe's model, and what updates it.
class RunModel {
 public:
  // The recipe outlives it. InvalidArgument where a stage's share does not fit
  // the model or the groups of hyper-parameters, or not only cuts links of the
  // stage before; or where the ranks of a stage, from `first` on, cannot share
  // the model's parameters.
  static absl::StatusOr<std::unique_ptr<RunModel>> Create(
      const Recipe& recipe, const ModelList& models, size_t first = 0);

  // For stages on this device and of these ranks, whom nobody watches. All of
  // it outlives them.
  RunEnv On(Device& device, Communicator& world, Communicator& network) const;

 private:
  RunModel() = default;

  ParamRegistry registry_;
  std::unique_ptr<Sequential> model_;
  std::unique_ptr<SlabOptimizer> optimizer_, host_optimizer_;
  RunEnv env_;  // of the above
};

}  // namespace delink
