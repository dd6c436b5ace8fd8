// A checkpoint opened for use: verified, its recipe read, its model built. Load
// reads the weights.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/tokenizer/tokenizer.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/module/layout.h"
#include "recipes/models/model_list.h"
#include "recipes/run/position/saved_run.h"
#include "recipes/schema/recipe.h"

namespace delink {

class SavedModel {
 public:
  // `checkpoint`: what FindCheckpoint takes; `dtype`: of the weights and
  // activations to compute with; `sets`: where the weights are
  // (layout_sets.h). Collective.
  static absl::StatusOr<std::unique_ptr<SavedModel>> Open(
      Communicator& comm, const std::string& checkpoint,
      const ModelList& models, DType dtype = DType::kF32,
      const std::vector<std::string>& sets = {});
  // The same for a verified step folder.
  static absl::StatusOr<std::unique_ptr<SavedModel>> OpenStep(
      Communicator& comm, const std::string& path, const ModelList& models,
      DType dtype = DType::kF32, const std::vector<std::string>& sets = {});

  // The step folder.
  const std::string& path() const { return path_; }
  const CheckpointHeader& header() const { return header_; }
  const SavedRun& run() const { return run_; }
  const Recipe& recipe() const { return recipe_; }
  const ParamRegistry& registry() const { return registry_; }
  const SharingMap& sharing() const { return sharing_; }
  Sequential& model() const { return *model_; }
  int blocks() const { return model_->blocks(); }

  // The ranks over which the checkpoint's stage or sets divide the weights: the
  // least common multiple of tensor, expert and tensor x shard, times pipeline.
  int64_t RanksOfWeights() const;
  // The layout in which `ranks` ranks shard the weights: tensor, pipeline and
  // expert of the checkpoint's stage, and data ranks for the rest, which shard
  // the weights too if the stage has zero = 3; `zero` is 0 otherwise. If
  // `ranks` is not a multiple of RanksOfWeights, shard does not fit expert
  // groups, or there are fewer layers than pipeline ranks: data ranks alone
  // without sets, InvalidArgument with sets.
  absl::StatusOr<Layout::Options> LayoutFor(int ranks) const;
  // The weights and the requested `states` of the optimizer, on `device`: all
  // of them, or this rank's shards in a layout of all ranks of `comm`. The
  // device and this must outlive the store. Weights that are host-resident in
  // the checkpoint's stage stay so. Collective.
  absl::StatusOr<std::unique_ptr<ParamStore>> Load(
      Communicator& comm, Device& device, std::vector<StateSpec> states = {},
      const Layout::Options& of_ranks = {}) const;

  absl::StatusOr<std::unique_ptr<Tokenizer>> MakeTokenizer() const;

  // The small files of the checkpoint: its recipe and tokenizer.
  absl::StatusOr<CheckpointFiles> Files() const;

 private:
  explicit SavedModel(DType dtype) : dtype_(dtype) {}
  absl::Status Read(const ModelList& models,
                    const std::vector<std::string>& sets);

  DType dtype_;
  bool set_ = false;  // whether there were sets
  std::string path_;
  CheckpointHeader header_;
  SavedRun run_;
  Recipe recipe_;
  ParamRegistry registry_;
  std::unique_ptr<Sequential> model_;
  SharingMap sharing_;
};

}  // namespace delink
