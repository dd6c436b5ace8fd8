// A text file as a document.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "data/corpus/byte_source.h"
#include "data/corpus/document_reader.h"

namespace delink {

class TextReader final : public DocumentReader {
 public:
  explicit TextReader(ByteSource source) : source_(std::move(source)) {}

  absl::StatusOr<TextPiece> Next() override;
  int64_t empty_documents() const override {
    return ended_ && consumed_ == 0 && buffer_.empty() ? 1 : 0;
  }
  int64_t stored_bytes() const override { return source_.stored_bytes(); }

 private:
  absl::Status Fill();

  ByteSource source_;
  std::string buffer_;    // UTF-8, except for a character cut short
  int64_t consumed_ = 0;  // bytes of text before the buffer
  bool ended_ = false;
};

}  // namespace delink
