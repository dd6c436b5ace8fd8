// Decides which steps are passed over: what [optimizer.skip] says.
//
// An outlying step is one whose gradient norm is above mean + outlier *
// deviation of the last `window` norms. Of a step that was skipped the window
// has the threshold that it was above: a single spike does not raise it by
// much, while norms that stay high do within some steps. The threshold of a
// step is known before the step before has ended: it looks at the norms of the
// steps before that one, so that the host may give the device a step while it
// is still at work. Norms jump where layers are delinked, so a stage begins
// with an empty window.
//
// The same on every rank, and in every checkpoint.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "recipes/run/recent_values.h"
#include "recipes/schema/recipe.h"

namespace delink {

class SkipWatch {
 public:
  // `saved`: what Saved gave, or empty at a run's start.
  SkipWatch(const OptimizerConfig::Skip& skip,
            const std::vector<double>& saved);

  // The largest norm that the next step may have; 0: any.
  double Threshold() const;

  // Whether the run goes on after a step that was skipped, finite or not; it
  // had the threshold `most`. False for one that is not to be passed over.
  // FailedPrecondition: too many in a row.
  absl::StatusOr<bool> Passes(int64_t step, double norm, bool finite,
                              double most);
  // A step that was not skipped.
  void Add(double norm);
  void BeginStage() { norms_.Clear(); }

  int64_t skipped() const { return skipped_; }  // in all

  // Skipped in all, skipped in a row, and the norms: what the rest of the run
  // depends on.
  std::vector<double> Saved() const;

 private:
  void Remember(double norm);

  OptimizerConfig::Skip skip_;
  RecentValues norms_;  // one more than the window
  int64_t skipped_ = 0, in_row_ = 0;
};

}  // namespace delink
