// Measures during a run how well the gradients of layers that share agree.
#pragma once

#include "absl/status/status.h"
#include "recipes/run/observers/diagnosis.h"
#include "recipes/run/observers/recorder.h"
#include "recipes/run/position/position.h"
#include "recipes/run/setup/setup.h"
#include "recipes/run/stage/stage_run.h"

namespace delink {

// Measures the agreement if it is due, after the step that was tried. Reports
// nothing for a skipped step or for gradients that are not finite. Collective.
absl::Status MaybeProbe(const RunSetup& run, Recorder& recorder,
                        StageRun& stage, const TriedStep& tried,
                        RunPosition& at);

}  // namespace delink
