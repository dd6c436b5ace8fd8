// Whether a run fits on its device.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "recipes/run/stage/stage_run.h"

namespace delink {

// Plans stage `first` and all later ones for this rank, as `delink plan` does.
// Compares the device memory of the stages and switches with the stages'
// budgets and, if the device reports it, with its free memory; each of the
// `ranks` that share the device has an equal part. Compares the host-resident
// memory of all ranks of the machine (`local`), in steps and at switches, with
// the budgets and the machine's memory. ResourceExhausted, with the stage's
// memory account and the keys that would make it fit; InvalidArgument, at the
// budget's key, if a budget is exceeded. Allocates nothing; no rank may have
// allocated anything. Collective: every rank returns the same.
absl::Status CheckMemory(const RunEnv& env, size_t first, int ranks,
                         Communicator& local);

}  // namespace delink
