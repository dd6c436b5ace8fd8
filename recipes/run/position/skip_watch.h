// Decides which steps are skipped, as [optimizer.skip] says.
//
// An outlying step is one whose gradient norm is above mean + outlier *
// deviation of the last `window` norms. For a skipped step the window holds the
// threshold instead of the norm. So a single spike raises the threshold little,
// but norms that stay high raise it within some steps. The threshold leaves out
// the norm of the newest step. So it is known before that step ends, and the
// host can queue the next step while the device works. Norms jump when layers
// are delinked, so a stage begins with an empty window.
//
// The same on every rank. Part of every checkpoint.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "recipes/run/position/recent_values.h"
#include "recipes/schema/recipe.h"

namespace delink {

class SkipWatch {
 public:
  // `saved`: the result of Saved(), or empty at a run's start.
  SkipWatch(const OptimizerConfig::Skip& skip,
            const std::vector<double>& saved);

  // The largest norm that the next step may have; 0: any.
  double Threshold() const;

  // Whether the run continues after a skipped step, finite or not, whose
  // threshold was `most`. False if the recipe does not allow skipping it.
  // FailedPrecondition: too many skipped in a row.
  absl::StatusOr<bool> Passes(int64_t step, double norm, bool finite,
                              double most);
  // A step that was not skipped.
  void Add(double norm);
  void BeginStage() { norms_.Clear(); }

  int64_t skipped() const { return skipped_; }  // in all

  // Steps skipped in all, steps skipped in a row, and the norms.
  std::vector<double> Saved() const;

 private:
  void Remember(double norm);

  OptimizerConfig::Skip skip_;
  RecentValues norms_;  // one more than the window
  int64_t skipped_ = 0, in_row_ = 0;
};

}  // namespace delink
