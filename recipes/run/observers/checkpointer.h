// Decides when a run saves a checkpoint, and what the checkpoint holds.
#pragma once

#include "absl/status/status.h"
#include "framework/checkpoint/checkpoint.h"
#include "recipes/run/observers/recorder.h"
#include "recipes/run/position/position.h"
#include "recipes/run/setup/setup.h"
#include "recipes/run/stage/stage_run.h"

namespace delink {

class Checkpointer {
 public:
  // Both outlive it.
  Checkpointer(const RunSetup& run, Recorder& recorder)
      : run_(run), recorder_(recorder) {}

  // Saves every run.checkpoint_every steps, and with `force`. Collective.
  absl::Status MaybeSave(StageRun& stage, const RunPosition& at, bool force);

 private:
  CheckpointHeader HeaderAt(const RunPosition& at) const;
  CheckpointFiles Files() const;

  const RunSetup& run_;
  Recorder& recorder_;
};

}  // namespace delink
