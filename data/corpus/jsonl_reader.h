// Reads each line of a JSONL file as a document: a JSON object (RFC 8259) with
// the text in one of its fields. Lines with only white space are skipped.
//
// Memory is bounded by the longest line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "data/corpus/byte_source.h"
#include "data/corpus/document_reader.h"

namespace delink {

class JsonlReader final : public DocumentReader {
 public:
  static constexpr size_t kLongestLine = size_t{256} << 20;

  JsonlReader(ByteSource source, std::string text_field,
              size_t longest_line = kLongestLine)
      : source_(std::move(source)),
        text_field_(std::move(text_field)),
        longest_line_(longest_line) {}

  absl::StatusOr<TextPiece> Next() override;
  int64_t empty_documents() const override { return empty_; }
  int64_t stored_bytes() const override { return source_.stored_bytes(); }

 private:
  // To the next line; false past the last.
  absl::StatusOr<bool> NextLine();
  absl::Status Fill();

  // "NAME:LINE" of the current line.
  std::string Place() const;

  // Sets text_ to the text of the current line.
  absl::Status ParseLine();

  ByteSource source_;
  const std::string text_field_;
  const size_t longest_line_;

  std::string buffer_;
  size_t line_begin_ = 0;      // in the buffer
  size_t line_end_ = 0;        // in the buffer, without its newline
  int64_t buffer_offset_ = 0;  // of the buffer in the file's text
  int64_t line_number_ = 0;
  bool ended_ = false;

  std::string text_;
  size_t text_at_ = 0;
  int64_t empty_ = 0;
};

}  // namespace delink
