// Learning-rate schedules: a pure function of the number of the step.
//
// Steps count from 0: step s is the one made after s steps are done. With
// warm-up over W steps the rate is peak * (s + 1) / W for s < W, so the first
// step moves and step W - 1 has the peak. The decay ends in `final_ratio` at
// the last step, exactly:
//   wsd       the peak, then a straight line over the last `decay` steps
//   cosine    half a cosine from the end of the warm-up to the last step
//   linear    a straight line over the same steps
//   constant  the peak
// Beyond the last step the rate does not change.
#pragma once

#include <cstdint>

namespace delink {

struct Schedule {
  enum class Kind { kWsd, kCosine, kLinear, kConstant };
  Kind kind = Kind::kWsd;
  double peak = 0;         // learning rate
  int64_t steps = 0;       // of the whole run
  int64_t warmup = 0;      // steps
  int64_t decay = 0;       // steps; wsd only
  double final_ratio = 0;  // rate at the last step over the peak
};

// A stage multiplies the schedule by a factor and by its own warm-up over the
// first `warmup` steps after its begin (0: none).
struct StageRate {
  double scale = 1;
  int64_t begin = 0;
  int64_t warmup = 0;
};

double LearningRate(const Schedule& schedule, int64_t step);
double LearningRate(const Schedule& schedule, const StageRate& stage,
                    int64_t step);

}  // namespace delink
