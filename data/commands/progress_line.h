// The progress of a command that reads or writes a corpus: one line that is
// overwritten on a terminal, else one line a phase.
#pragma once

#include <chrono>
#include <ostream>
#include <string>

#include "data/corpus/build.h"

namespace delink {

class ProgressLine {
 public:
  // `live` outlives it.
  ProgressLine(std::ostream& live, bool terminal)
      : live_(live), terminal_(terminal) {}

  void operator()(const CorpusProgress& progress);
  void EndPhase();

 private:
  using Clock = std::chrono::steady_clock;

  std::string Describe(const CorpusProgress& progress) const;

  std::ostream& live_;
  const bool terminal_;
  std::string phase_;
  std::string text_;
  Clock::time_point start_;
};

}  // namespace delink
