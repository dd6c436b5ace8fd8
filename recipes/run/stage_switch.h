// The switch from one stage of a run to the next: the heart of Pseudo-to-Real.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "recipes/run/position.h"
#include "recipes/run/recorder.h"
#include "recipes/run/setup.h"
#include "recipes/run/stage_run.h"

namespace delink {

// Ends `stage` and begins the one that `position` has just entered. Parameters
// are delinked; optimizer state goes by the stage's policy, for `calibrated` by
// the gradients of the batches that come next, which no update follows; one
// that is not finite ends the run or, with optimizer.skip.nonfinite, is left
// out. The loss on one fixed batch is taken on both sides, in the new stage's
// micro-batches, and told to `recorder`. `why`: the stage is over.
absl::StatusOr<std::unique_ptr<StageRun>> SwitchStage(
    const RunSetup& run, Recorder& recorder, std::unique_ptr<StageRun> stage,
    const RunPosition& position, const std::string& why);

}  // namespace delink
