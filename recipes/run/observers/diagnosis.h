// Suspicious steps, saved for inspection: a step whose loss or gradient is not
// finite, or whose gradient is far larger than those before it.
//
// OUT/diagnosis/step-NNNNNNNN/ holds
//   step.json        step, stage, lr, loss, grad_norm, tokens, why, and the
//                    gradient's norm for each slab (null: not finite)
//   recipe.toml      the resolved recipe
//   rank-00000.json  for each data rank its sequences: the global sample
//                    number, token ids and targets (-1: not counted)
// Weights are not saved: a resume from the last checkpoint reproduces the step
// bit for bit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "recipes/run/position/recent_values.h"
#include "recipes/run/setup/setup.h"
#include "recipes/run/stage/stage_run.h"

namespace delink {

// A step that was just tried, and its result.
struct TriedStep {
  int64_t step = 0;  // its number, from 1
  double lr = 0;
  const HostBatch* batch = nullptr;
  StepResult result;
};

// The error of a step that is not finite. It names the first bad number and the
// folder of the saved step. Collective.
absl::Status NotFinite(const RunSetup& run, StageRun& stage,
                       const TriedStep& tried);

// Notices gradient norms far above those of the steps before.
class OutlierWatch {
 public:
  // `limit`: standard deviations above the mean; 0: nothing is an outlier.
  explicit OutlierWatch(double limit) : limit_(limit) {}

  static constexpr size_t kWindow =
      100;                               // steps that mean and deviation are of
  static constexpr size_t kFewest = 20;  // with fewer, nothing is an outlier

  struct Outlier {
    double mean = 0;
    double deviations = 0;  // above the mean
  };
  // Whether `norm` is an outlier. Adds it to the window in any case.
  std::optional<Outlier> Add(double norm);

 private:
  double limit_;
  RecentValues norms_{kWindow};
};

// Warns of an outlying step and saves it. The same on every rank. A full disk
// does not fail the run.
void MaybeKeepOutlier(const RunSetup& run, OutlierWatch& watch, StageRun& stage,
                      const TriedStep& tried);

}  // namespace delink
