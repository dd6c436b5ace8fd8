// The second pass: encodes documents on several threads and writes the tokens
// to both sides of a corpus. The tokens do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "data/corpus/corpus_writer.h"
#include "data/corpus/document_reader.h"
#include "data/corpus/document_scan.h"
#include "data/corpus/ordered_workers.h"
#include "data/corpus/reporter.h"
#include "data/tokenizer/tokenizer.h"

namespace delink {

class Encoder {
 public:
  struct Sides {
    CorpusWriter& train;
    CorpusWriter& validation;
  };

  // All outlive the encoder.
  Encoder(const Tokenizer& tokenizer, const DocumentScan& scan, Sides sides,
          Reporter& reporter);

  // Reads all documents of `reader`, which must be those of the scan.
  absl::Status Run(DocumentReader& reader, int threads);

 private:
  // Some text of one document for one side, and its tokens.
  struct Part {
    std::string text;
    int side = 0;
    bool ends = false;  // the document, on this side
    std::vector<int32_t> ids;
  };
  struct Batch {
    std::vector<Part> parts;
    absl::Status status;
  };

  // The next text for a thread to encode; none after the last document.
  absl::StatusOr<Batch> ReadBatch(DocumentReader& reader);
  absl::Status Add(TextPiece piece, Batch& batch);
  absl::Status Write(const Batch& batch);
  absl::Status Append(const Part& part, CorpusWriter& side);

  const Tokenizer& tokenizer_;
  const DocumentScan& scan_;
  CorpusWriter* const sides_[2];
  Reporter& reporter_;

  size_t document_ = 0;  // the one being read
  int64_t at_ = 0;       // bytes of it that have been read
  int side_ = 0;
  int64_t done_ = 0;  // bytes written
};

}  // namespace delink
