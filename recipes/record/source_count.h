// How much of a corpus a run has consumed, for its checkpoints and log.
#pragma once

#include <cstdint>
#include <string>

namespace delink {

// One corpus of a run's training data, with the counts consumed.
struct SourceCount {
  std::string name;
  std::string corpus;   // digest: what the counts belong to
  int64_t samples = 0;  // consumed, over all epochs
  int64_t tokens = 0;   // the same in tokens
  double epochs = 0;    // the same in epochs of the corpus
  int64_t begin = 0;    // `samples` when the current blend began
  double share = 0;     // of the current blend, 0 to 1; 0: not in it

  friend bool operator==(const SourceCount&, const SourceCount&) = default;
};

}  // namespace delink
