#include "data/corpus/document_scan.h"

#include <optional>

#include "data/corpus/split.h"
#include "framework/base/sha256.h"
#include "framework/base/status_macros.h"

namespace delink {
absl::StatusOr<DocumentScan> ScanDocuments(
    DocumentReader& reader, double validation, uint64_t seed,
    const std::function<void(int64_t)>& advanced) {
  std::vector<DocumentSize> sizes;
  std::optional<Sha256> digest;
  while (true) {
    DELINK_ASSIGN_OR_RETURN(const TextPiece piece, reader.Next());
    if (piece.text.empty()) break;
    if (piece.begins) {
      sizes.push_back({});
      digest.emplace();
    }
    sizes.back().bytes += static_cast<int64_t>(piece.text.size());
    digest->Update(piece.text);
    if (piece.ends) sizes.back().key = DocumentKey(*digest);
    advanced(reader.stored_bytes());
  }
  DocumentScan scan;
  scan.empty = reader.empty_documents();
  const std::vector<int64_t> training = TrainingBytes(sizes, validation, seed);
  scan.documents.reserve(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    scan.documents.push_back(
        {.bytes = sizes[i].bytes, .training = training[i]});
    scan.bytes += sizes[i].bytes;
    scan.training_bytes += training[i];
  }
  return scan;
}

}  // namespace delink
