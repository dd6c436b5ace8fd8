// Repeats a call and measures its wall time in seconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

namespace delink::bench {

inline double Since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

struct Timing {
  double median = 0;
  double low = 0, high = 0;  // quartiles
  int64_t samples = 0;

  // Between the quartiles, relative to the median.
  double spread() const { return median > 0 ? (high - low) / median : 0; }
};

// Needs at least one sample.
Timing Summarise(std::vector<double> seconds);

struct RepeatOptions {
  double seconds = 0.3;  // least time of all samples together
  int64_t least = 7;     // least number of samples
  // If a call is shorter, a sample has as many calls as take this long, so that
  // the cost of the clock and of std::function is negligible.
  double shortest = 20e-6;
  // Optional: waits for the work that calls have enqueued. A sample's time
  // includes it.
  std::function<void()> finish;
};

// Calls `call` with 0, 1, 2, ... It first warms up with one call, or for a
// while if that call is short, and then samples as the options say.
Timing Repeat(const std::function<void(int64_t)>& call,
              const RepeatOptions& options);

}  // namespace delink::bench
