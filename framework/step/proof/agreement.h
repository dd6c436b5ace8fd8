// Whether all ranks are about to take the same steps.
#pragma once

#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"
#include "framework/step/proof/joint_plan.h"

namespace delink {

// Checks that every rank has a plan for comm.size() ranks, and all the same.
// Then each rank can run its stage's programs, because making the plan proved
// the programs of all stages.
// Otherwise every rank gets an error. It names the lowest rank that is wrong,
// and what is wrong or the first instruction in which its plan differs from
// rank 0's. A collective of `comm`.
absl::Status AgreeOnPlan(Communicator& comm,
                         const absl::StatusOr<JointPlan>& plan);

}  // namespace delink
