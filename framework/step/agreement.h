// Whether all ranks are about to take the same step.
#pragma once

#include "absl/status/status.h"
#include "framework/comm/communicator.h"
#include "framework/step/instruction.h"

namespace delink {

// Proves the programs of all ranks before the first step: this rank's is valid
// and made for comm.size() ranks, and the others' equal it, as data parallelism
// demands; so ValidatePrograms holds of them all. Otherwise, on every rank, an
// error that names the lowest rank that is wrong and what is, or the first
// instruction in which its program differs from rank 0's. A collective of
// `comm`.
absl::Status AgreeOnProgram(Communicator& comm, const Program& program);

}  // namespace delink
