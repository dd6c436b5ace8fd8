// A sample of the lines of the training text, to train a tokenizer on.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "data/corpus/document_reader.h"
#include "data/corpus/document_scan.h"
#include "framework/base/rng.h"

namespace delink {

class LineSampler {
 public:
  // Samples about `sample_bytes` of lines from the training parts that `scan`
  // found in the documents of `reader`, by a keyed hash of the line number.
  // Both outlive the sampler. `advanced` receives the bytes of text read.
  LineSampler(DocumentReader& reader, const DocumentScan& scan,
              int64_t sample_bytes, uint64_t seed,
              std::function<void(int64_t)> advanced);

  // The next line of the sample, without its newline; false at the end or after
  // an error. Lines of more than 4096 bytes are split for SentencePiece.
  bool Next(std::string* line);

  const absl::Status& status() const { return status_; }

 private:
  bool NextLine(std::string* line);
  bool FillPiece();

  DocumentReader& reader_;
  const DocumentScan& scan_;
  const RngKey key_;
  double keep_ = 1;
  const std::function<void(int64_t)> advanced_;

  size_t document_ = 0;  // the next document to begin
  int64_t left_ = 0;     // training bytes left of the document being read
  std::string piece_;
  size_t at_ = 0;
  uint64_t line_number_ = 0;
  int64_t read_ = 0;
  absl::Status status_;
};

}  // namespace delink
