// The first pass over all documents. It finds errors in the inputs before any
// token is written, and decides which text is for training.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "data/corpus/document_reader.h"

namespace delink {

// The size of a document, and how many of its leading bytes are for training.
struct DocumentPart {
  int64_t bytes = 0;
  int64_t training = 0;
};

struct DocumentScan {
  std::vector<DocumentPart> documents;
  int64_t bytes = 0;
  int64_t training_bytes = 0;
  int64_t empty = 0;  // documents skipped
};

// Reads `reader` to its end. The choice of documents for validation depends on
// their text, not on file names or formats (split.h). `advanced` receives the
// number of stored bytes read.
absl::StatusOr<DocumentScan> ScanDocuments(
    DocumentReader& reader, double validation, uint64_t seed,
    const std::function<void(int64_t)>& advanced);

}  // namespace delink
