// Reports the progress of building a corpus: at the start and end of each phase
// and at most ten times a second in between.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "data/corpus/build.h"

namespace delink {

class Reporter {
 public:
  // `callback`, which may be empty, outlives the reporter.
  explicit Reporter(const std::function<void(const CorpusProgress&)>& callback)
      : callback_(callback) {}

  // `total` 0: not known.
  void Start(const char* phase, int64_t total) {
    now_ = {.phase = phase, .total = total};
    Send();
  }
  void Set(int64_t done, int64_t tokens) {
    now_.done = done;
    now_.tokens = tokens;
    if (Clock::now() - last_ > std::chrono::milliseconds(100)) Send();
  }
  void Finish() {
    now_.done = now_.total;
    Send();
  }

 private:
  using Clock = std::chrono::steady_clock;

  void Send() {
    last_ = Clock::now();
    if (callback_) callback_(now_);
  }

  const std::function<void(const CorpusProgress&)>& callback_;
  CorpusProgress now_;
  Clock::time_point last_;
};

}  // namespace delink
