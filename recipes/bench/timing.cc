#include "recipes/bench/timing.h"

#include <algorithm>

#include "framework/base/check.h"

namespace delink::bench {
namespace {

using Clock = std::chrono::steady_clock;

// A sample this long drowns the clock and the call through std::function.
constexpr double kShortestSample = 20e-6;

std::vector<double> Samples(const std::function<void(int64_t)>& call,
                            const RepeatOptions& options) {
  int64_t next = 0;
  Clock::time_point start = Clock::now();
  call(next++);
  double once = Since(start);
  const double warm_up = options.seconds / 5;
  for (start = Clock::now(); Since(start) + once < warm_up;) {
    const Clock::time_point begin = Clock::now();
    call(next++);
    once = Since(begin);
  }
  const int64_t calls =
      once > 0 ? static_cast<int64_t>(kShortestSample / once) + 1 : 1000;
  std::vector<double> samples;
  for (start = Clock::now();
       static_cast<int64_t>(samples.size()) < options.least ||
       Since(start) < options.seconds;) {
    const Clock::time_point begin = Clock::now();
    for (int64_t i = 0; i < calls; ++i) call(next++);
    samples.push_back(Since(begin) / static_cast<double>(calls));
  }
  return samples;
}

// Between the two nearest, where it falls between.
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
