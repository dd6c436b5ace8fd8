// Measures how long a run takes and how fast it is.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "recipes/record/run_event.h"
#include "recipes/record/run_peak.h"

namespace delink {

class Meter {
 public:
  using Clock = std::chrono::steady_clock;

  // Starts at `start`, after `seconds` that the run took before.
  Meter(RunPeak peak, double seconds, Clock::time_point start = Clock::now())
      : peak_(std::move(peak)), before_(seconds), start_(start) {}

  double Seconds() const;      // of the run so far
  double peak_flops() const {  // of all ranks
    return peak_.flops();
  }

  // Seconds since the last call. They are a step's if the last call was at the
  // step's begin.
  double Lap();
  // The speed of a step that took `seconds`. May measure the machine's peak
  // again; that time counts for no step.
  Speed Step(double seconds, int64_t tokens, double flops_per_token);
  // Restarts the running mean, because the next steps are of another kind.
  void ForgetSteps() { mean_seconds_ = 0; }

 private:
  RunPeak peak_;
  double before_;
  Clock::time_point start_;
  double lap_ = 0;           // when the last ended
  double mean_seconds_ = 0;  // of a step, a running mean; 0: none yet
};

}  // namespace delink
