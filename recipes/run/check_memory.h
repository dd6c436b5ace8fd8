// Whether a run fits on its device.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "recipes/run/stage_run.h"

namespace delink {

// Plans stage `first` and all after it for this rank, as `delink plan` does,
// and holds what they and the switches between them need against what is free
// on the device, where the device says so, of which each of the `ranks` that
// share it has an equal part. ResourceExhausted, with the stage's memory
// account and the keys that would make it fit. Allocates nothing; no rank may
// have allocated anything.
absl::Status CheckMemory(const RunEnv& env, size_t first, int ranks);

}  // namespace delink
