// Everything a run stands on before its first step: recipe, corpora, model,
// device, folder, and where to begin.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "framework/checkpoint/checkpoint.h"
#include "parallel/launch/launch.h"
#include "parallel/watch/folder_lock.h"
#include "recipes/models/model_list.h"
#include "recipes/run/position.h"
#include "recipes/run/pretrain.h"
#include "recipes/run/run_watch.h"
#include "recipes/run/sources.h"
#include "recipes/run/stage_run.h"

namespace delink {

class RunSetup {
 public:
  // Reads and checks everything, then (and only then) changes the run's folder,
  // which is this run's from before it is first looked into.
  // Collective: every rank returns the same. InvalidArgument: the options or
  // the recipe are wrong.
  static absl::StatusOr<std::unique_ptr<RunSetup>> Create(
      const TrainOptions& options, const ModelList& models, World& world);

  // The stage to begin with: fresh, or as the checkpoint left it.
  absl::StatusOr<std::unique_ptr<StageRun>> Begin();

  const Recipe& recipe() const { return recipe_; }
  const RunEnv& env() const { return env_; }
  const std::string& out() const { return out_; }
  const Sources& sources() const { return *sources_; }
  World& world() const { return *world_; }
  RunWatch& watch() const { return *watch_; }
  // After a step: writes the trace, if there is to be one and it is time.
  // Collective.
  absl::Status MaybeTrace(StageRun& stage, int64_t step, bool ends);
  bool first() const { return world_->rank() == 0; }
  int threads() const { return threads_; }
  // Of the checkpoint that is resumed from.
  const std::optional<SavedRun>& resumed() const { return resumed_; }
  // Where the run begins, and seconds spent before.
  RunPosition Position() const;
  double seconds() const { return resumed_ ? resumed_->seconds : 0; }

  // What a checkpoint of this run carries.
  CheckpointHeader Header(const RunPosition& position, double seconds) const;
  CheckpointFiles Files() const;

 private:
  RunSetup() = default;
  absl::Status ReadInputs(const TrainOptions& options, const ModelList& models);
  absl::Status FindResume(const TrainOptions& options, const ModelList& models);
  absl::Status CheckResume(const ModelList& models);
  // Losses on other data than before are not to be compared.
  void CheckValidation();
  std::string ValidatedOn() const;
  absl::Status FindInit(const TrainOptions& options);
  absl::Status CheckInit(const TrainOptions& options) const;
  absl::Status MakeModel(const ModelList& models);
  absl::Status TakeFolder();
  absl::Status LeaveCourse();

  std::unique_ptr<FolderLock> lock_;  // rank 0's; outlives all that writes
  World* world_ = nullptr;
  Recipe recipe_;
  RunEnv env_;
  std::string out_;
  int threads_ = 1;
  std::optional<Sources> sources_;
  std::optional<Blend> blend_;  // where the run begins
  std::unique_ptr<Device> device_;
  ParamRegistry registry_;
  std::unique_ptr<Sequential> model_;
  std::unique_ptr<SlabOptimizer> optimizer_;
  std::unique_ptr<Communicator> network_;
  std::unique_ptr<RunWatch> watch_;
  std::unique_ptr<TraceFile> trace_;  // optional
  std::string checkpoint_;            // resumed from
  std::optional<SavedRun> resumed_;
  std::string init_;  // the checkpoint whose weights the run begins with
};

}  // namespace delink
