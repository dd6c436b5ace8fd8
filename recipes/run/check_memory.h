// Whether a run fits on its device.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "recipes/run/stage_run.h"

namespace delink {

// Plans stage `first` and all after it for this rank, as `delink plan` does,
// and holds what they and the switches between them need against what is free
// on the device, where the device says so, of which each of the `ranks` that
// share it has an equal part, and against the stages' budgets; and what is at
// home on the host, in steps and at switches, of all ranks of the machine
// (`local`), against that and against the memory of the machine.
// ResourceExhausted, with the stage's memory account and the keys that would
// make it fit; InvalidArgument at the key where it is a budget. Allocates
// nothing; no rank may have allocated anything. Collective: every rank returns
// the same.
absl::Status CheckMemory(const RunEnv& env, size_t first, int ranks,
                         Communicator& local);

}  // namespace delink
