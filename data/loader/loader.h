// Reads training samples from a corpus, by global sample number.
//
// The corpus is cut into samples of seq + 1 tokens, seq apart, so that each
// token is predicted once an epoch; the rest at the end is not used. Sample
// numbers g = 0, 1, 2, ... go on across epochs: g is sample
// g % samples_per_epoch() of epoch g / samples_per_epoch(). A keyed permutation
// shuffles each epoch anew, unless `shuffle` is false. A sample depends only on
// the corpus, the options and g: any rank can read any sample, and a resumed
// run reads on. Immutable and thread-safe.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/corpus/corpus.h"

namespace delink {

struct LoaderOptions {
  int64_t seq = 0;    // tokens a sample
  uint64_t seed = 0;  // of the order
  bool shuffle = true;
};

class Loader {
 public:
  // `corpus` outlives the loader. A corpus too short for one sample is an
  // error.
  static absl::StatusOr<Loader> Create(const Corpus& corpus,
                                       const LoaderOptions& options);

  const Corpus& corpus() const { return corpus_; }
  int64_t seq() const { return options_.seq; }
  int64_t samples_per_epoch() const { return samples_; }

  // The first token, in the corpus, of global sample `sample` >= 0.
  int64_t FirstToken(int64_t sample) const;

  // Both [seq]; targets[i] is the token after inputs[i].
  absl::Status Read(int64_t sample, int32_t* inputs, int32_t* targets) const;

 private:
  Loader(const Corpus& corpus, const LoaderOptions& options, int64_t samples)
      : corpus_(corpus), options_(options), samples_(samples) {}

  Corpus corpus_;
  LoaderOptions options_;
  int64_t samples_;
};

}  // namespace delink
