#include "framework/sharing/switch_policy.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"
#include "framework/base/check.h"

namespace delink {
namespace {

// The slope of the least-squares line through (0, y[0]), (1, y[1]), ...
double Slope(const std::vector<double>& y) {
  const double middle = (static_cast<double>(y.size()) - 1) / 2;
  double rise = 0, run = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    const double x = static_cast<double>(i) - middle;
    // Relative to the first value, so that a large loss costs no digits.
    rise += x * (y[i] - y[0]);
    run += x * x;
  }
  return rise / run;
}

template <typename T>
void KeepLast(std::vector<T>& values, size_t count) {
  if (values.size() <= count) return;
  values.erase(values.begin(),
               values.end() - static_cast<std::ptrdiff_t>(count));
}

}  // namespace

SwitchPolicy::SwitchPolicy(const SwitchPolicyConfig& config,
                           SwitchHistory history)
    : config_(config), history_(std::move(history)) {
  DELINK_CHECK_GE(config_.plateau, 0);
  DELINK_CHECK_GE(config_.gradient, 0);
  DELINK_CHECK_GE(config_.window, 2);
  Trim();
}

void SwitchPolicy::Trim() {
  KeepLast(history_.losses, static_cast<size_t>(config_.window));
  std::vector<SwitchHistory::Probe>& probes = history_.probes;
  size_t keep = 0;
  while (keep < probes.size() &&
         (keep < kMinProbes || probes[probes.size() - 1 - keep].step >
                                   probes.back().step - config_.window)) {
    ++keep;
  }
  KeepLast(probes, keep);
}

void SwitchPolicy::AddLoss(double loss) {
  if (!std::isfinite(loss)) return;
  history_.losses.push_back(loss);
  Trim();
}

void SwitchPolicy::AddProbe(int64_t step, const Agreement& agreement) {
  if (!std::isfinite(agreement.together) || !std::isfinite(agreement.apart)) {
    return;
  }
  DELINK_CHECK(history_.probes.empty() || history_.probes.back().step < step)
      << "probes come in order";
  history_.probes.push_back(
      {.step = step, .together = agreement.together, .apart = agreement.apart});
  Trim();
}

bool SwitchPolicy::WindowIsFull() const {
  return static_cast<int64_t>(history_.losses.size()) == config_.window;
}

std::optional<double> SwitchPolicy::Fall() const {
  if (!WindowIsFull()) return std::nullopt;
  return -Slope(history_.losses) * static_cast<double>(config_.window);
}

std::optional<double> SwitchPolicy::Ratio() const {
  if (!WindowIsFull()) return std::nullopt;
  double sum = 0;
  size_t counted = 0;
  for (const SwitchHistory::Probe& probe : history_.probes) {
    if (!(probe.apart > 0)) continue;
    sum += probe.together / probe.apart;
    ++counted;
  }
  if (counted < kMinProbes) return std::nullopt;
  return sum / static_cast<double>(counted);
}

std::optional<std::string> SwitchPolicy::Due() const {
  if (const auto fall = Fall();
      config_.plateau > 0 && fall.has_value() && *fall < config_.plateau) {
    return absl::StrFormat(
        "the loss %s by %.3g nats over the last %d steps, less than %g",
        *fall < 0 ? "rose" : "fell", std::abs(*fall), config_.window,
        config_.plateau);
  }
  if (const auto ratio = Ratio();
      config_.gradient > 0 && ratio.has_value() && *ratio <= config_.gradient) {
    return absl::StrFormat(
        "the gradients of layers that share agree to %.3g in the mean of the "
        "last %d probes (1: not at all), no more than %g",
        *ratio, history_.probes.size(), config_.gradient);
  }
  return std::nullopt;
}

}  // namespace delink
