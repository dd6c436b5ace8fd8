// Reads a whole corpus, compares it with its index, and computes statistics
// that the index does not have.
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
  std::vector<uint64_t> document_keys;  // hashes of their tokens, sorted
  int64_t ids_used = 0;                 // ids of the vocabulary that occur
  int32_t largest_id = 0;

  // Documents that repeat an earlier one, and their tokens.
  int64_t repeated_documents = 0;
  int64_t repeated_tokens = 0;

  // The length that `share` of the documents do not exceed.
  int64_t Quantile(double share) const;
};

// DataLoss names what does not fit: a document that does not begin where the
// previous one ends, an end-of-document token inside a document, a document
// without one, or a digest that differs from that of the tokens. Memory is
// about 30 bytes a document. `advanced` receives the number of tokens read.
absl::StatusOr<CorpusCheck> CheckCorpus(
    const Corpus& corpus, const std::function<void(int64_t)>& advanced = {});

// How many of `keys` are among `others`; both sorted.
int64_t CountShared(const std::vector<uint64_t>& keys,
                    const std::vector<uint64_t>& others);

}  // namespace delink
