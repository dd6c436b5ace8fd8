// The time of a step as `delink plan --machine` predicts it (machine_step.h),
// to hold against the run.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/step/time/lane_use.h"
#include "recipes/run/stage/stage_run.h"

namespace delink {

struct PlannedStep {
  double seconds = 0;
  std::vector<LaneUse> lanes;  // of rank 0
};

// Of stage `index`, on rank 0. nullopt: no rates of this machine are stored;
// InvalidArgument: their file has a mistake.
// Allocates no device memory.
absl::StatusOr<std::optional<PlannedStep>> PlanStep(const RunEnv& env,
                                                    size_t index);

}  // namespace delink
