#include "recipes/run/position/skip_watch.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace delink {
namespace {

// Values before the norms.
constexpr size_t kCounts = 2;

std::vector<double> NormsOf(const std::vector<double>& saved) {
  if (saved.size() < kCounts) return {};
  return {saved.begin() + kCounts, saved.end()};
}

}  // namespace

SkipWatch::SkipWatch(const OptimizerConfig::Skip& skip,
                     const std::vector<double>& saved)
    : skip_(skip),
      norms_(static_cast<size_t>(skip.window) + 1, NormsOf(saved)) {
  if (saved.size() < kCounts) return;
  skipped_ = static_cast<int64_t>(saved[0]);
  in_row_ = static_cast<int64_t>(saved[1]);
}

double SkipWatch::Threshold() const {
  const auto window = static_cast<size_t>(skip_.window);
  if (skip_.outlier <= 0 || norms_.size() < window + 1) return 0;
  // Without the newest, whose step may still be running.
  const auto [mean, deviation] = norms_.Of(window, 1);
  return mean + skip_.outlier * deviation;
}

absl::StatusOr<bool> SkipWatch::Passes(int64_t step, double norm, bool finite,
                                       double most) {
  if (!finite && !skip_.nonfinite) return false;
  if (finite) Remember(std::min(norm, most));
  ++skipped_;
  ++in_row_;
  if (in_row_ <= skip_.most) return true;
  return absl::FailedPreconditionError(absl::StrFormat(
      "step %d: %d steps in a row have been skipped, more than "
      "optimizer.skip.most allows; the last had a gradient norm of %g; go back "
      "to a checkpoint and lower optimizer.lr, or raise optimizer.skip.outlier "
      "if nothing is wrong with such gradients",
      step, in_row_, norm));
}

void SkipWatch::Add(double norm) {
  in_row_ = 0;
  Remember(norm);
}

void SkipWatch::Remember(double norm) {
  if (skip_.outlier > 0) norms_.Add(norm);
}

std::vector<double> SkipWatch::Saved() const {
  if (skipped_ == 0 && norms_.size() == 0) return {};
  std::vector<double> saved = {static_cast<double>(skipped_),
                               static_cast<double>(in_row_)};
  saved.insert(saved.end(), norms_.values().begin(), norms_.values().end());
  return saved;
}

}  // namespace delink
