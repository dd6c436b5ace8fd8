// How long to wait between two polls of an event that is often near: at first
// not at all, then longer and longer, so that kernels of this or another rank
// can use the core. This lengthens a wait by a sixteenth at most, apart from
// the shortest pauses.
//
// The thread sleeps and does not yield: on a busy core, a thread that yielded
// waited ten times as long for its next turn as one that slept (Linux 6.18,
// docs/benchmarks.md).
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace delink {

class Backoff {
 public:
  // Zero: poll again at once.
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
  // Call it when something has happened, because more may be near.
  void Reset() { *this = Backoff(); }

 private:
  int looks_ = 0;
  std::chrono::microseconds slept_{0};
};

}  // namespace delink
