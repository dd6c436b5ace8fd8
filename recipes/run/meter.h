// How long a run takes and how fast it is.
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

  // Begins to count `seconds`, which the run took before, at `start`.
  Meter(RunPeak peak, double seconds, Clock::time_point start = Clock::now())
      : peak_(std::move(peak)), before_(seconds), start_(start) {}

  double Seconds() const;      // that the run has taken
  double peak_flops() const {  // of all ranks
    return peak_.flops();
  }

  // The seconds since the last call: of a step, where the call before ended
  // what is not its time.
  double Lap();
  // The speed of a step that took `seconds`. May measure the machine's peak
  // again, which is no step's time.
  Speed Step(double seconds, int64_t tokens, double flops_per_token);
  // The next steps are of another kind: how fast they are is known anew.
  void ForgetSteps() { mean_seconds_ = 0; }

 private:
  RunPeak peak_;
  double before_;
  Clock::time_point start_;
  double lap_ = 0;           // when the last ended
  double mean_seconds_ = 0;  // of a step, a running mean; 0: none yet
};

}  // namespace delink
