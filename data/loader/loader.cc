#include "data/loader/loader.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/loader/permutation.h"
#include "framework/base/check.h"
#include "framework/base/status_macros.h"

namespace delink {

absl::StatusOr<Loader> Loader::Create(const Corpus& corpus,
                                      const LoaderOptions& options) {
  DELINK_CHECK_GT(options.seq, 0);
  const int64_t samples = (corpus.tokens() - 1) / options.seq;
  if (samples < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        corpus.dir(), ": ", corpus.tokens(),
        " tokens are too few for one "
        "sample of ",
        options.seq, " + 1; set data.seq to at most ",
        std::max<int64_t>(corpus.tokens() - 1, 1),
        ", or build a corpus of more text or with a larger --validation"));
  }
  return Loader(corpus, options, samples);
}

int64_t Loader::FirstToken(int64_t sample) const {
  DELINK_CHECK_GE(sample, 0);
  const int64_t epoch = sample / samples_;
  int64_t place = sample % samples_;
  if (options_.shuffle) {
    const RngKey key = Fold(Fold(KeyFromSeed(options_.seed), "data order"),
                            static_cast<uint64_t>(epoch));
    place = Permutation(key, samples_)(place);
  }
  return place * options_.seq;
}

absl::Status Loader::Read(int64_t sample, int32_t* inputs,
                          int32_t* targets) const {
  std::vector<int32_t> ids(static_cast<size_t>(options_.seq) + 1);
  DELINK_RETURN_IF_ERROR(
      corpus_.Read(FirstToken(sample), options_.seq + 1, ids.data()));
  std::copy(ids.begin(), ids.end() - 1, inputs);
  std::copy(ids.begin() + 1, ids.end(), targets);
  return absl::OkStatus();
}

}  // namespace delink
