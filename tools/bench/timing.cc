#include "tools/bench/timing.h"

#include <algorithm>

#include "framework/base/check.h"

namespace delink::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMostCalls = 1'000'000;  // in a row

std::vector<double> Samples(const std::function<void(int64_t)>& call,
                            const RepeatOptions& options) {
  int64_t next = 0;
  // Seconds of one call, of `calls` in a row.
  const auto sample = [&](int64_t calls) {
    const Clock::time_point begin = Clock::now();
    for (int64_t i = 0; i < calls; ++i) call(next++);
    if (options.finish) options.finish();
    return Since(begin) / static_cast<double>(calls);
  };
  double once = sample(1);
  const double warm_up = options.seconds / 5;
  Clock::time_point start = Clock::now();
  while (Since(start) + once < warm_up) once = sample(1);
  // With few calls the final wait is a large part, so more calls are needed.
  int64_t calls = 1;
  while (calls < kMostCalls &&
         once * static_cast<double>(calls) < options.shortest) {
    calls = std::min(
        kMostCalls, once > 0 ? static_cast<int64_t>(options.shortest / once) + 1
                             : 2 * calls);
    once = sample(calls);
  }
  std::vector<double> samples;
  for (start = Clock::now();
       static_cast<int64_t>(samples.size()) < options.least ||
       Since(start) < options.seconds;) {
    samples.push_back(sample(calls));
  }
  return samples;
}

// Interpolates between the two nearest values.
double Quantile(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double part = at - static_cast<double>(below);
  return sorted[below] * (1 - part) + sorted[above] * part;
}

}  // namespace

Timing Summarise(std::vector<double> seconds) {
  DELINK_CHECK(!seconds.empty());
  std::sort(seconds.begin(), seconds.end());
  return {.median = Quantile(seconds, 0.5),
          .low = Quantile(seconds, 0.25),
          .high = Quantile(seconds, 0.75),
          .samples = static_cast<int64_t>(seconds.size())};
}

Timing Repeat(const std::function<void(int64_t)>& call,
              const RepeatOptions& options) {
  return Summarise(Samples(call, options));
}

}  // namespace delink::bench
