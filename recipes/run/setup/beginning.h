// Where a run begins: at its start, with fresh weights or with those of another
// run (--init); or at a checkpoint (--resume).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/checkpoint/saved_as.h"
#include "recipes/run/position/position.h"
#include "recipes/run/position/saved_run.h"
#include "recipes/run/setup/init_folder.h"
#include "recipes/run/setup/inputs.h"
#include "recipes/run/setup/train_options.h"
#include "recipes/run/stage/stage_run.h"
#include "recipes/schema/recipe_io.h"

namespace delink {

class Beginning {
 public:
  // For a run in the folder `out`. Finds the checkpoint to resume from, if the
  // options ask for one. `inputs` outlive the result. Collective.
  // InvalidArgument: the checkpoint is of another run.
  static absl::StatusOr<Beginning> Find(const TrainOptions& options,
                                        const ModelList& models,
                                        const std::string& out,
                                        const RunInputs& inputs,
                                        Communicator& comm);
  // Finds the checkpoint or the Hugging Face folder whose weights a new run
  // begins with, if the options ask for one. Collective. InvalidArgument: the
  // weights do not fit the first stage.
  absl::Status FindInit(const TrainOptions& options, const ModelList& models,
                        const std::string& out, const RunEnv& env);

  RunPosition Position() const;
  // The stage to begin with: fresh, or as a checkpoint left it. Collective.
  absl::StatusOr<std::unique_ptr<StageRun>> MakeStage(const RunEnv& env) const;

  // The state of the checkpoint that the run resumes from.
  const std::optional<SavedRun>& resumed() const { return resumed_; }
  std::vector<SourceCount> counts() const;  // none at the start
  double seconds() const { return resumed_ ? resumed_->seconds : 0; }
  double flops() const { return resumed_ ? resumed_->flops : 0; }

  // Sets aside the checkpoints of the folder that are later than the one
  // resumed from: they belong to an abandoned continuation of the run. For rank
  // 0.
  absl::Status SetLaterAside(const std::string& out) const;

 private:
  Beginning(const RunInputs& inputs, Blend blend)
      : inputs_(&inputs), blend_(std::move(blend)) {}
  absl::Status FindResume(const TrainOptions& options, const ModelList& models,
                          const std::string& out, Communicator& comm);
  // Fills `changes` with the differences from the checkpoint's recipe.
  absl::Status CheckResume(const ModelList& models, bool first,
                           std::vector<Difference>* changes);
  void LogResume(const std::vector<Difference>& changes) const;
  // Validation losses on different data must not be compared.
  void CheckValidation(bool first);
  // Checks that --overwrite does not remove what the run begins with.
  absl::Status CheckOverwrite(const TrainOptions& options,
                              const std::string& out) const;
  absl::Status CheckInit(const RunEnv& env);
  void LogInit(const RunEnv& env, bool shares) const;
  absl::Status LoadInit(const RunEnv& env, StageRun& stage) const;
  absl::Status OpenFolder(const ModelList& models, const RunEnv& env);

  const RunInputs* inputs_;
  Blend blend_;
  std::string checkpoint_;  // resumed from
  std::optional<SavedRun> resumed_;
  std::string init_;  // source of the initial weights; or empty
  SavedAs init_as_;   // how it holds them, if it is a checkpoint
  std::unique_ptr<FolderInit> folder_;  // if that is no checkpoint
};

}  // namespace delink
