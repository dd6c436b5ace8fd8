// Where a run begins: at its start, with fresh weights or those of another run
// (--init), or where a checkpoint left it (--resume).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/checkpoint/checkpoint.h"
#include "recipes/run/init_folder.h"
#include "recipes/run/inputs.h"
#include "recipes/run/position.h"
#include "recipes/run/pretrain.h"
#include "recipes/run/saved_run.h"
#include "recipes/run/stage_run.h"
#include "recipes/schema/recipe_io.h"

namespace delink {

class Beginning {
 public:
  // Of a run in the folder `out` with `inputs`, which outlive it: finds the
  // checkpoint to go on from, if there is to be one. Collective.
  // InvalidArgument: it is of another run.
  static absl::StatusOr<Beginning> Find(const TrainOptions& options,
                                        const ModelList& models,
                                        const std::string& out,
                                        const RunInputs& inputs,
                                        Communicator& comm);
  // Finds the checkpoint, or the Hugging Face folder, whose weights a new run
  // begins with, if there is to be one. Collective. InvalidArgument: they do
  // not fit the first stage.
  absl::Status FindInit(const TrainOptions& options, const ModelList& models,
                        const std::string& out, const RunEnv& env);

  RunPosition Position() const;
  // The stage to begin with: fresh, or as a checkpoint left it. Collective.
  absl::StatusOr<std::unique_ptr<StageRun>> MakeStage(const RunEnv& env) const;

  // Of the checkpoint that the run goes on from.
  const std::optional<SavedRun>& resumed() const { return resumed_; }
  std::vector<SourceCount> counts() const;  // none at the start
  double seconds() const { return resumed_ ? resumed_->seconds : 0; }
  double flops() const { return resumed_ ? resumed_->flops : 0; }

  // Checkpoints of the folder that are past the one that is resumed from belong
  // to a course of the run that was left: they are set aside. For rank 0.
  absl::Status SetLaterAside(const std::string& out) const;

 private:
  Beginning(const RunInputs& inputs, Blend blend)
      : inputs_(&inputs), blend_(std::move(blend)) {}
  absl::Status FindResume(const TrainOptions& options, const ModelList& models,
                          const std::string& out, Communicator& comm);
  // Fills in what the recipe has otherwise than the checkpoint's.
  absl::Status CheckResume(const ModelList& models, bool first,
                           std::vector<Difference>* changes);
  void LogResume(const std::vector<Difference>& changes) const;
  // Losses on other data than before are not to be compared.
  void CheckValidation(bool first);
  // That --overwrite leaves what the run begins with.
  absl::Status CheckOverwrite(const TrainOptions& options,
                              const std::string& out) const;
  absl::Status CheckInit(const RunEnv& env) const;
  absl::Status OpenFolder(const ModelList& models, const RunEnv& env);

  const RunInputs* inputs_;
  Blend blend_;
  std::string checkpoint_;  // resumed from
  std::optional<SavedRun> resumed_;
  std::string init_;  // whose weights the run begins with; or empty
  std::unique_ptr<FolderInit> folder_;  // where that is no checkpoint
};

}  // namespace delink
