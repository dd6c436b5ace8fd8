// Steps that cannot be trusted, kept for whoever looks into them: one whose
// loss or gradient is not finite, and one whose gradient is far larger than
// those before it.
//
// OUT/diagnosis/step-NNNNNNNN/ holds
//   step.json        step, stage, lr, loss, grad_norm, tokens, why, and the
//                    gradient's norm for each slab (null: not finite)
//   recipe.toml      the resolved recipe
//   rank-00000.json  for each data rank its sequences: the global sample
//                    number, token ids and targets (-1: not counted)
// Weights are not in it: the last checkpoint leads there again, bit for bit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "recipes/run/recent_values.h"
#include "recipes/run/setup.h"
#include "recipes/run/stage_run.h"

namespace delink {

// A step that was just tried: what it was and what came of it.
struct TriedStep {
  int64_t step = 0;  // its number, from 1
  double lr = 0;
  const HostBatch* batch = nullptr;
  StepResult result;
};

// The error of a step that is not finite: where the first bad number is, and
// where the step is kept. Collective.
absl::Status NotFinite(const RunSetup& run, StageRun& stage,
                       const TriedStep& tried);

// Notices gradient norms far above those of the steps before.
class OutlierWatch {
 public:
  // `limit`: standard deviations above the mean; 0: nothing is an outlier.
  explicit OutlierWatch(double limit) : limit_(limit) {}

  static constexpr size_t kWindow =
      100;                               // steps that mean and deviation are of
  static constexpr size_t kFewest = 20;  // before that nothing is far

  struct Outlier {
    double mean = 0;
    double deviations = 0;  // above the mean
  };
  // Whether this one is; it joins the window in any case.
  std::optional<Outlier> Add(double norm);

 private:
  double limit_;
  RecentValues norms_{kWindow};
};

// Warns of an outlying step and keeps it. The same on every rank; a disk that
// is full is no error of the run.
void MaybeKeepOutlier(const RunSetup& run, OutlierWatch& watch, StageRun& stage,
                      const TriedStep& tried);

}  // namespace delink
