// How much a run has consumed of a corpus: for its checkpoints and its log.
#pragma once

#include <cstdint>
#include <string>

namespace delink {

// One corpus of a run's training data, and how much of it has been consumed.
struct SourceCount {
  std::string name;
  std::string corpus;   // digest: what the counts belong to
  int64_t samples = 0;  // consumed, over all epochs
  int64_t tokens = 0;   // the same in tokens
  double epochs = 0;    // the same in epochs of the corpus
  int64_t begin = 0;    // `samples` where the blend of now began
  double share = 0;     // of the blend of now, 0 to 1; 0: not in it

  friend bool operator==(const SourceCount&, const SourceCount&) = default;
};

}  // namespace delink
