// The lowest validation loss of a run, and how long nothing better has come:
// what keeps the best checkpoint and ends a run early. Part of every
// checkpoint.
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
  // From what `saved` gave; empty: nothing has been validated.
  explicit BestValidation(const std::vector<double>& saved);

  // A loss that is no number is never better. `counts`: towards an early end.
  // Returns whether it is the lowest so far.
  bool Add(int64_t step, double loss, bool counts, double delta);
  // From here on validations count anew; the lowest stays.
  void CountAnew();

  // Why the run is over, in words; empty: it goes on.
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
