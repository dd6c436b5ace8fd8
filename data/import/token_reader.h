// The documents of token files, run by run in bounded memory.
//
// A document ends where a stretch of a file does and at the token given for
// that; the token is not handed out. Documents without tokens are passed over.
// Not thread-safe.
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

// Some tokens of one document. One without tokens ends a document that has
// some, or else stands for the end of all.
struct TokenRun {
  std::vector<int32_t> ids;
  bool begins = false;  // a document
  bool ends = false;    // a document
};

class TokenReader {
 public:
  struct Options {
    int32_t vocab = 0;            // ids are below it
    int32_t end_of_document = 0;  // may be no id of the files
  };

  // `layouts` outlive the reader.
  TokenReader(std::span<const TokenLayout> layouts, const Options& options)
      : layouts_(layouts), options_(options) {}

  // The error of an id that is not below `vocab` names file and place.
  absl::StatusOr<TokenRun> Next();

  // The bytes of tokens that have been read.
  int64_t stored_bytes() const { return stored_; }

  // Documents passed over so far.
  int64_t empty_documents() const { return empty_; }

 private:
  // The next piece of the files; false past the last.
  absl::StatusOr<bool> Refill();
  absl::Status OpenStretch();
  absl::Status Check(int64_t id) const;
  // Where all of a stretch is handed out, goes on to the next; true where that
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
