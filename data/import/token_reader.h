// Reads the documents of token files, run by run in bounded memory.
//
// A document ends at the end of a stretch and at the end-of-document token,
// which is not returned. Documents without tokens are skipped. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/import/layout.h"
#include "framework/base/file.h"

namespace delink {

// Some tokens of one document. A run without tokens ends a document if `ends`
// is true, else it marks the end of all documents.
struct TokenRun {
  std::vector<int32_t> ids;
  bool begins = false;  // a document
  bool ends = false;    // a document
};

class TokenReader {
 public:
  struct Options {
    int32_t vocab = 0;            // ids are below it
    int32_t end_of_document = 0;  // the files may have none
  };

  // `layouts` outlive the reader.
  TokenReader(std::span<const TokenLayout> layouts, const Options& options)
      : layouts_(layouts), options_(options) {}

  // An id outside [0, vocab) is an error that names file and byte.
  absl::StatusOr<TokenRun> Next();

  // The bytes of tokens that have been read.
  int64_t stored_bytes() const { return stored_; }

  // Documents without tokens, skipped so far.
  int64_t empty_documents() const { return empty_; }

 private:
  // Reads the next piece of the files; false after the last.
  absl::StatusOr<bool> Refill();
  absl::Status OpenStretch();
  absl::Status Check(int64_t id) const;
  // If all of a stretch has been returned, goes on to the next; true if that
  // ends a document.
  bool EndStretch();

  const std::span<const TokenLayout> layouts_;
  const Options options_;

  size_t layout_ = 0;
  size_t stretch_ = 0;
  int64_t at_ = 0;  // tokens of the stretch that have been read
  std::optional<InputFile> file_;
  int64_t position_ = 0;  // of the file

  std::vector<int64_t> values_;  // read, of one stretch
  size_t next_ = 0;              // of values_
  bool stretch_ends_ = false;    // with values_

  bool inside_ = false;  // a document that has tokens
  int64_t stored_ = 0;
  int64_t empty_ = 0;
};

}  // namespace delink
