// A first reading of all documents, which finds what is wrong with the inputs
// before anything is written, and decides what is for training.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "data/corpus/document_reader.h"

namespace delink {

// A document and how many of its first bytes are for training.
struct DocumentPart {
  int64_t bytes = 0;
  int64_t training = 0;
};

struct DocumentScan {
  std::vector<DocumentPart> documents;
  int64_t bytes = 0;
  int64_t training_bytes = 0;
  int64_t empty = 0;  // documents passed over
};

// Reads `reader` to its end. Which documents are for validation is decided by
// their text, not by name or form (split.h). `advanced` is told how many stored
// bytes have been read.
absl::StatusOr<DocumentScan> ScanDocuments(
    DocumentReader& reader, double validation, uint64_t seed,
    const std::function<void(int64_t)>& advanced);

}  // namespace delink
