// What a person sees of a run: a live line on a terminal, and every so many
// steps one that stays; in a file or a pipe those alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "recipes/record/terminal.h"

namespace delink {

struct RunStatus {
  int64_t step = 0;
  int64_t steps = 0;
  double loss = 0;  // nats
  double tokens_per_s = 0;
  double peak_fraction = 0;  // of the measured matmul peak; 0: not known
  double lr = 0;
  double grad_norm = 0;
  int64_t memory = 0;  // bytes of this process, resident
  double seconds_left = 0;
  std::string stage;
};

// "step 120/488  loss 4.3210  3 min 05 s left  12.3 k tokens/s  pseudo ...":
// what matters most comes first. Of the parts as many as have room in `width`.
std::string Format(const RunStatus& status, int width = 1 << 20);
// The same behind a bar, "[##........] 24%  step ...", where there is room for
// one.
std::string FormatLive(const RunStatus& status, int width);
// "1 h 02 min", "3 min 05 s", "12 s".
std::string FormatSeconds(double seconds);
// "12.3 k", "1.20 M": with three digits.
std::string FormatCount(double count);

// Writes to standard error. Rank 0 alone shows steps; the others have one too,
// so that what they log clears the live line.
class Progress {
 public:
  // `every`: lines that stay are written every so many steps.
  explicit Progress(int64_t every);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void Show(const RunStatus& status);

 private:
  int64_t every_;
  Terminal terminal_;
  std::chrono::steady_clock::time_point shown_;  // the live line, last
};

// Resident and peak resident bytes of this process.
int64_t ResidentBytes();
int64_t PeakResidentBytes();

}  // namespace delink
