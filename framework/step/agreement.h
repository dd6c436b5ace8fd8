// Whether all ranks are about to take the same steps.
#pragma once

#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"
#include "framework/step/joint_plan.h"

namespace delink {

// Whether this rank has a plan, made for comm.size() ranks, and all others the
// same: then each runs its stage's programs, which that proves of all.
// Otherwise, on every rank, an error that names the lowest rank that is wrong
// and what is, or the first instruction in which its plan differs from rank
// 0's. A collective of `comm`.
absl::Status AgreeOnPlan(Communicator& comm,
                         const absl::StatusOr<JointPlan>& plan);

}  // namespace delink
