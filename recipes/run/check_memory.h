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
// share it has an equal part, and against the stages' budgets; and what is at
// home on the host, of all ranks of the machine (`local`), against that and
// against the memory of the machine. ResourceExhausted, with the stage's memory
// account and the keys that would make it fit; InvalidArgument at the key where
// it is a budget. Allocates nothing; no rank may have allocated anything.
// Collective: every rank returns the same.
absl::Status CheckMemory(const RunEnv& env, size_t first, int ranks,
                         Communicator& local);

// Bytes of the planes of the stage before `stage`, which shares as `before`,
// once it is laid out as `stage` is: at the switch both are held, and then
// these and the planes of `stage`. 0 where the ranks are arranged alike, which
// moves nothing. On the device of `env`, which allocates nothing.
absl::StatusOr<int64_t> MovedPlanes(const RunEnv& env, size_t stage,
                                    const SharingMap& before);

// The most that a switch holds of planes: `before` and `planes` of the stages,
// and `moved`, as MovedPlanes has it.
int64_t SwitchPeak(int64_t before, int64_t moved, int64_t planes);

}  // namespace delink
