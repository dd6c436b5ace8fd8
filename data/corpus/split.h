// Which text is for training and which for validation: a pure function of the
// documents' keys and sizes and a seed.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/base/sha256.h"

namespace delink {

struct DocumentSize {
  uint64_t key = 0;  // of its text
  int64_t bytes = 0;
};

// The key of a document by the digest of its text, which is spent.
uint64_t DocumentKey(Sha256& digest);

// For every document, how many of its leading bytes are for training; the rest
// is for validation. Documents go to one side whole, chosen by a hash of seed
// and key until the validation side has about `share` of the bytes. Where
// whole documents cannot give at least half of that, one document more is cut.
// Given at least two bytes, both sides get at least one.
std::vector<int64_t> TrainingBytes(const std::vector<DocumentSize>& documents,
                                   double share, uint64_t seed);

}  // namespace delink
