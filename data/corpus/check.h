// All of a corpus read and looked at: what its index claims against what is
// there, and statistics that the index does not have.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "data/corpus/corpus.h"

namespace delink {

struct CorpusCheck {
  std::vector<int64_t> lengths;         // of documents, in tokens, sorted; the
                                        // end of a document included
  std::vector<uint64_t> document_keys;  // by their tokens, sorted
  int64_t ids_used = 0;                 // how many of the vocabulary
  int32_t largest_id = 0;

  // Documents that are the same as one before, and their tokens.
  int64_t repeated_documents = 0;
  int64_t repeated_tokens = 0;

  // The length that `share` of the documents do not exceed.
  int64_t Quantile(double share) const;
};

// DataLoss naming what does not fit: a document that does not begin where the
// one before ends, an end within a document or none at its own, a digest that
// is not that of the tokens. Memory is some 30 bytes a document. `advanced` is
// told how many tokens have been read.
absl::StatusOr<CorpusCheck> CheckCorpus(
    const Corpus& corpus, const std::function<void(int64_t)>& advanced = {});

// How many of `keys` are among `others`; both sorted.
int64_t CountShared(const std::vector<uint64_t>& keys,
                    const std::vector<uint64_t>& others);

}  // namespace delink
