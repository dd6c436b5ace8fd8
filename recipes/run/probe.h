// How well the gradients of the layers that share agree, while a run trains.
#pragma once

#include "absl/status/status.h"
#include "recipes/run/diagnosis.h"
#include "recipes/run/position.h"
#include "recipes/run/recorder.h"
#include "recipes/run/setup.h"
#include "recipes/run/stage_run.h"

namespace delink {

// Measures it where it is time to, after the step that was tried. Says nothing
// of a step that was skipped, or of gradients that are not finite. Collective.
absl::Status MaybeProbe(const RunSetup& run, Recorder& recorder,
                        StageRun& stage, const TriedStep& tried,
                        RunPosition& at);

}  // namespace delink
