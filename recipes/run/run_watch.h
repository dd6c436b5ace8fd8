// What a run learns from outside while it trains, and agrees on: signals.
#pragma once

#include <cstdint>
#include <string_view>

#include "framework/step/step_watch.h"

namespace delink {

// What signals ask of a run: the same on all ranks, in the same step.
struct Asked {
  bool stop = false;  // save, and end
  bool save = false;  // save, and go on
};

class RunWatch final : public StepWatch {
 public:
  void Begin(Lane lane, int64_t step, std::string_view what) override;
  double Vote() override;

  // What the votes of a step say.
  static Asked AskedBy(double votes);
  // A checkpoint was written for what was asked.
  void Saved(const Asked& asked);

 private:
  int64_t saves_ = 0;  // SIGUSR1s that have been answered
};

}  // namespace delink
