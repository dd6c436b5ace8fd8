// What a person sees of a run: one live line on a terminal, plain lines in a
// file or a pipe.
#pragma once

#include <cstdint>
#include <string>

namespace delink {

struct ProgressLine {
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

// "step 120/488  pseudo  loss 4.321  12.3 k tokens/s  45 % of peak  ..."
std::string Format(const ProgressLine& line);
// "1 h 02 min", "3 min 05 s", "12 s".
std::string FormatSeconds(double seconds);
// "12.3 k", "1.20 M": with three digits.
std::string FormatCount(double count);

// Writes to standard error; rank 0 alone has one.
class Progress {
 public:
  // `every`: plain lines are written every so many steps.
  explicit Progress(int64_t every);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void Show(const ProgressLine& line);

 private:
  int64_t every_;
  bool terminal_;
};

// Resident and peak resident bytes of this process.
int64_t ResidentBytes();
int64_t PeakResidentBytes();

}  // namespace delink
