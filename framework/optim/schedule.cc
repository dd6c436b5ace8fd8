#include "framework/optim/schedule.h"

#include <algorithm>
#include <cmath>

#include "framework/base/check.h"

namespace delink {
namespace {

// The fraction of a warm-up or decay over `steps` steps that is reached at its
// step `step`; 1 from its last step on.
double Reached(int64_t step, int64_t steps) {
  if (steps <= 0) return 1;
  const auto done =
      static_cast<double>(std::clamp<int64_t>(step + 1, 0, steps));
  return done / static_cast<double>(steps);
}

// 1 at the start of the decay, final_ratio at its end.
double DecayFactor(const Schedule& s, int64_t step) {
  const double range = 1 - s.final_ratio;
  const int64_t after_warmup = s.steps - s.warmup;
  switch (s.kind) {
    case Schedule::Kind::kConstant:
      return 1;
    case Schedule::Kind::kWsd:
      if (s.decay <= 0) return 1;
      return 1 - range * Reached(step - (s.steps - s.decay), s.decay);
    case Schedule::Kind::kLinear:
      if (after_warmup <= 0) return 1;
      return 1 - range * Reached(step - s.warmup, after_warmup);
    case Schedule::Kind::kCosine: {
      if (after_warmup <= 0) return 1;
      constexpr double kPi = 3.14159265358979323846;
      const double reached = Reached(step - s.warmup, after_warmup);
      return s.final_ratio + range * 0.5 * (1 + std::cos(kPi * reached));
    }
  }
  DELINK_CHECK(false) << "no such schedule";
  return 0;
}

}  // namespace

double LearningRate(const Schedule& schedule, int64_t step) {
  DELINK_CHECK_GE(step, 0);
  return schedule.peak * Reached(step, schedule.warmup) *
         DecayFactor(schedule, step);
}

double LearningRate(const Schedule& schedule, const StageRate& stage,
                    int64_t step) {
  DELINK_CHECK_GE(step, stage.begin);
  return LearningRate(schedule, step) * stage.scale *
         Reached(step - stage.begin, stage.warmup);
}

}  // namespace delink
