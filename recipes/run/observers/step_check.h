// Holds the time of a stage's steps against its plan, if this machine's rates
// are stored (delink bench --suite machine).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "recipes/record/run_event.h"
#include "recipes/run/dry_run/planned_step.h"
#include "recipes/run/setup/setup.h"
#include "recipes/run/stage/stage_run.h"

namespace delink {

// Of rank 0.
class StepCheck {
 public:
  // Of a stage's steps in this process: the first are not counted, because the
  // machine is not warm; then the median step is taken without a trace; the
  // last are traced for their lanes, unless the user traces.
  static constexpr int64_t kWarm = 10, kTraced = 10, kSteps = 100;

  explicit StepCheck(const RunSetup& run) : run_(&run) {}

  // Before the first step of stage `index`, after step `step` of the run. A
  // plan that fails is logged, and does not end the run.
  void Begin(size_t index, int64_t step);
  // After each step, which took `seconds`. The kSteps-th waits for the stage's
  // lanes and returns the result.
  absl::StatusOr<std::optional<StepsTimed>> Step(StageRun& stage,
                                                 const RunMoment& at,
                                                 double seconds);

 private:
  std::vector<StepsTimed::LaneTime> LaneTimes() const;

  const RunSetup* run_;
  std::optional<PlannedStep> planned_;  // until it is compared
  int64_t first_ = 0;                   // the step before the stage's first
  std::vector<double> seconds_;
};

}  // namespace delink
