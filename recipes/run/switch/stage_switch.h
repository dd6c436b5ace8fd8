// The switch from one stage of a run to the next: the heart of Pseudo-to-Real.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "recipes/run/observers/recorder.h"
#include "recipes/run/position/position.h"
#include "recipes/run/setup/setup.h"
#include "recipes/run/stage/stage_run.h"

namespace delink {

// Ends `stage` and begins the one that `position` has just entered. Delinks
// parameters and converts optimizer state by the stage's policy. The policy
// `calibrated` uses gradients of the next batches, without updates. If such a
// gradient is not finite, the run ends or, with optimizer.skip.nonfinite, the
// gradient is left out. Measures the loss on one fixed batch before and after
// the switch, in the new stage's micro-batches, and reports it to `recorder`.
// `why`: the reason why the stage is over.
absl::StatusOr<std::unique_ptr<StageRun>> SwitchStage(
    const RunSetup& run, Recorder& recorder, std::unique_ptr<StageRun> stage,
    const RunPosition& position, const std::string& why);

}  // namespace delink
