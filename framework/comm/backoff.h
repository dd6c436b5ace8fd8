// How long to wait between two looks at what is often a moment away: at first
// the core is only given up, for others who have work; then for longer and
// longer, so that a rank that waits long leaves its core to the kernels of this
// rank or of another on the same core.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace delink {

class Backoff {
 public:
  // Zero: look again at once, but yield.
  std::chrono::microseconds Next() {
    constexpr int kYields = 20;
    constexpr std::chrono::microseconds kLongest(50);
    if (looks_ < kYields) {
      ++looks_;
      return std::chrono::microseconds(0);
    }
    const std::chrono::microseconds now = pause_;
    pause_ = std::min(2 * pause_, kLongest);
    return now;
  }
  void Pause() {
    const std::chrono::microseconds pause = Next();
    if (pause.count() == 0) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(pause);
    }
  }
  // Something has happened: more may be near.
  void Reset() { *this = Backoff(); }

 private:
  int looks_ = 0;
  std::chrono::microseconds pause_{10};
};

}  // namespace delink
