// Whether a run fits on its device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "recipes/run/stage_run.h"

namespace delink {

// Plans stage `first` and all after it for this rank, as `delink plan` does,
// and holds what they and the switches between them need against what is free
// on the device, where the device says so, of which each of the `ranks` that
// share it has an equal part. ResourceExhausted, with the stage's memory
// account and the keys that would make it fit. Allocates nothing; no rank may
// have allocated anything.
absl::Status CheckMemory(const RunEnv& env, size_t first, int ranks);

// Bytes of the planes of the stage before `stage`, which shares as `before`,
// once it is laid out as `stage` is: at the switch both are held, and then
// these and the planes of `stage`. 0 where the ranks are arranged alike, which
// moves nothing. On the device of `env`, which allocates nothing.
absl::StatusOr<int64_t> MovedPlanes(const RunEnv& env, size_t stage,
                                    const SharingMap& before);

}  // namespace delink
