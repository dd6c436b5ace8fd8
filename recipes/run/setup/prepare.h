// What a run and its plan both build from a recipe before they allocate memory.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/corpus/corpus.h"
#include "recipes/models/model_list.h"
#include "recipes/run/stage/stage_run.h"
#include "recipes/schema/recipe.h"

namespace delink {

// The recipe; if it gives no vocabulary, with the corpus's. InvalidArgument:
// its vocabulary is too small.
absl::StatusOr<Recipe> FitVocab(const Recipe& recipe, const Corpus& corpus);

// Whether the model's parameters can be cut for the stage's tensor ranks. A
// custom model need not define ModelConfig::cuts; its parameters decide.
absl::Status CheckCut(const Recipe& recipe, const ParamRegistry& registry,
                      size_t stage);

// Whether the stage's expert ranks divide the experts of the model, which must
// have some if there are several such ranks.
absl::Status CheckExperts(const Recipe& recipe, const ParamRegistry& registry,
                          size_t stage);

// Checks that each row of the stage's `offload` matches a parameter.
absl::Status CheckOffload(const Recipe& recipe, const ParamRegistry& registry,
                          size_t stage);

// Whether the lanes other than compute have a thread of their own. They have
// one if a rank has several threads; if a stage has a pipeline, because its
// messages are large, nearly always under way and must be polled; if weights
// are sharded, for the same reason; and if a stage offloads, because copies and
// host updates overlap compute.
bool HasLaneThread(const Recipe& recipe, int threads);

// A recipe's model and its optimizers.
class RunModel {
 public:
  // The recipe outlives it. InvalidArgument: a stage's share does not fit the
  // model or the groups of hyper-parameters, or does more than cut links of the
  // stage before; or the model's parameters cannot be cut for the ranks of a
  // stage from `first` on.
  static absl::StatusOr<std::unique_ptr<RunModel>> Create(
      const Recipe& recipe, const ModelList& models, size_t first = 0);

  // For stages on this device and these ranks, without a watch. The arguments
  // and this outlive them.
  RunEnv On(Device& device, Communicator& world, Communicator& network) const;

 private:
  RunModel() = default;

  ParamRegistry registry_;
  std::unique_ptr<Sequential> model_;
  std::unique_ptr<SlabOptimizer> optimizer_, host_optimizer_;
  RunEnv env_;  // of the above
};

}  // namespace delink
