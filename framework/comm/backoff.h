// How long to wait between two looks at what is often a moment away: at first
// not at all, then for longer and longer, so that a rank that waits leaves its
// core to the kernels of this rank or of another on the same core. What it
// waits is never more than a sixteenth longer for that, but for the least
// pauses.
//
// The core is not yielded: where others want it, a thread that yields gives up
// its turn, and was seen to wait ten times as long for the next one as a thread
// that sleeps (Linux 6.18, docs/benchmarks.md).
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace delink {

class Backoff {
 public:
  // Zero: look again at once.
  std::chrono::microseconds Next() {
    using std::chrono::microseconds;
    constexpr int kLooks = 100;
    if (looks_ < kLooks) {
      ++looks_;
      return microseconds(0);
    }
    const microseconds pause = std::clamp(
        slept_ / 16, std::min(slept_ + microseconds(10), microseconds(50)),
        microseconds(1000));
    slept_ += pause;
    return pause;
  }
  void Pause() {
    const std::chrono::microseconds pause = Next();
    if (pause.count() > 0) std::this_thread::sleep_for(pause);
  }
  // Something has happened: more may be near.
  void Reset() { *this = Backoff(); }

 private:
  int looks_ = 0;
  std::chrono::microseconds slept_{0};
};

}  // namespace delink
