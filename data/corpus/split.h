// Decides which text is for training and which for validation: a pure function
// of the keys and sizes of the documents, a share and a seed.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/base/sha256.h"

namespace delink {

struct DocumentSize {
  uint64_t key = 0;  // of its text
  int64_t bytes = 0;
};

// The key of a document, from the digest of its text, which takes no more data.
uint64_t DocumentKey(Sha256& digest);

// For every document, how many of its leading bytes are for training; the rest
// is for validation. Whole documents, chosen by a hash of seed and key, go to
// validation until it has about `share` of the bytes. If whole documents give
// less than half of that, one more document is cut. With `share` 0 all is for
// training. Otherwise both sides get at least one byte if there are two.
std::vector<int64_t> TrainingBytes(const std::vector<DocumentSize>& documents,
                                   double share, uint64_t seed);

}  // namespace delink
