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
  // About `sample_bytes` of the lines of the training parts that `scan` found
  // in the documents of `reader`, chosen by a keyed hash of their number. Both
  // outlive the sampler. `advanced` is told how many bytes of text are done.
  LineSampler(DocumentReader& reader, const DocumentScan& scan,
              int64_t sample_bytes, uint64_t seed,
              std::function<void(int64_t)> advanced);

  // The next line of the sample, without its newline, cut to what SentencePiece
  // trains on; false at the end or after an error.
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

  size_t document_ = 0;  // of the next piece, or the one after it
  int64_t left_ = 0;     // bytes for training of the document being read
  std::string piece_;
  size_t at_ = 0;
  uint64_t line_number_ = 0;
  int64_t read_ = 0;
  absl::Status status_;
};

}  // namespace delink
