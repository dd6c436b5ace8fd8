// How long something takes: repeated, in seconds of wall time.
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
  double seconds = 0.3;  // at least, of all samples together
  int64_t least = 7;     // samples
};

// Calls `call` with 0, 1, 2, ...: once or, when that is over soon, a while for
// nothing, then for as long as the options say. A call too short for the clock
// is sampled several at a time.
Timing Repeat(const std::function<void(int64_t)>& call,
              const RepeatOptions& options);

}  // namespace delink::bench
