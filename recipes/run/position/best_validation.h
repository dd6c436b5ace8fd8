// The lowest validation loss of a run, and how many validations have not
// improved it. Decides which checkpoint is the best and when a run ends early.
// Part of every checkpoint.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "recipes/schema/recipe.h"

namespace delink {

class BestValidation {
 public:
  BestValidation() = default;
  // From the result of saved(); empty: no validation yet.
  explicit BestValidation(const std::vector<double>& saved);

  // `counts`: whether it counts towards an early end. Returns whether the loss
  // is the lowest so far; a NaN never is.
  bool Add(int64_t step, double loss, bool counts, double delta);
  // Restarts the count towards an early end. Keeps the lowest loss.
  void CountAnew();

  // Why the run ends, in words; empty: it continues.
  std::string Over(const StopAfter& stop) const;

  double loss() const { return loss_; }   // infinite before any
  int64_t step() const { return step_; }  // of it; -1 before any

  // Four numbers; empty before any validation.
  std::vector<double> saved() const;

 private:
  static constexpr double kNone = std::numeric_limits<double>::infinity();

  double loss_ = kNone;
  int64_t step_ = -1;
  double counted_ = kNone;  // the last that was better by delta
  int64_t since_ = 0;       // validations counted since then
};

}  // namespace delink
