#include "recipes/run/observers/step_check.h"

#include <array>
#include <string>
#include <utility>

#include "framework/base/at.h"
#include "framework/base/log.h"
#include "framework/base/median.h"
#include "framework/base/status_macros.h"
#include "framework/step/time/trace.h"

namespace delink {

void StepCheck::Begin(size_t index, int64_t step) {
  first_ = step;
  seconds_.clear();
  planned_ = std::nullopt;
  absl::StatusOr<std::optional<PlannedStep>> planned =
      PlanStep(run_->env(), index);
  if (planned.ok()) {
    planned_ = *std::move(planned);
  } else {
    DELINK_LOG(kWarning) << "the time of a step cannot be planned: "
                         << std::string(planned.status().message());
  }
  if (Trace* const trace = run_->own_trace(); trace != nullptr) {
    trace->Keep(step + kSteps - kTraced + 1, step + kSteps);
  }
}

absl::StatusOr<std::optional<StepsTimed>> StepCheck::Step(StageRun& stage,
                                                          const RunMoment& at,
                                                          double seconds) {
  if (!planned_.has_value()) return std::nullopt;
  const int64_t done = at.step - first_;
  if (done > kWarm && done <= kSteps - kTraced) seconds_.push_back(seconds);
  if (done < kSteps) return std::nullopt;
  DELINK_RETURN_IF_ERROR(stage.executor().Drain());
  StepsTimed timed{.at = at,
                   .planned = planned_->seconds,
                   .measured = Median(seconds_),
                   .lanes = LaneTimes()};
  planned_.reset();
  return timed;
}

std::vector<StepsTimed::LaneTime> StepCheck::LaneTimes() const {
  std::vector<StepsTimed::LaneTime> times;
  Trace* const trace = run_->own_trace();
  if (trace == nullptr) return times;
  std::array<double, kLanes> planned{};
  for (const LaneUse& use : planned_->lanes) {
    At(planned, use.lane) = use.busy;
  }
  const std::array<double, kLanes> measured = BusyLanes(*trace);
  for (int i = 0; i < kLanes; ++i) {
    if (planned[i] == 0 && measured[i] == 0) continue;
    times.push_back({.lane = ToString(static_cast<Lane>(i)),
                     .planned = planned[i],
                     .measured = measured[i]});
  }
  trace->Keep(0, -1);
  return times;
}

}  // namespace delink
