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
  // A call that is shorter is sampled several at a time, as many as take this
  // long: it drowns the clock and the call through std::function.
  double shortest = 20e-6;
  // Optional: waits for what calls have begun. Time runs until it is back.
  std::function<void()> finish;
};

// Calls `call` with 0, 1, 2, ...: once or, when that is over soon, a while for
// nothing, then for as long as the options say.
Timing Repeat(const std::function<void(int64_t)>& call,
              const RepeatOptions& options);

}  // namespace delink::bench
