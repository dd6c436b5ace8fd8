// Reads documents piece by piece in bounded memory and checks their UTF-8.
//
// A text file is one document, and so is each line of a JSONL file. Documents
// without text are skipped. The pieces of a document depend only on its text,
// not on the file format. Errors name file, line (JSONL), byte and remedy.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/corpus/text_inputs.h"

namespace delink {

struct TextPiece {
  std::string text;     // at most 64 KiB; empty past the last document
  bool begins = false;  // a document
  bool ends = false;    // a document
};

class DocumentReader {
 public:
  virtual ~DocumentReader() = default;

  virtual absl::StatusOr<TextPiece> Next() = 0;

  // Documents skipped so far because they had no text.
  virtual int64_t empty_documents() const = 0;

  // The bytes of the inputs, as they are stored, that have been read.
  virtual int64_t stored_bytes() const = 0;
};

// The documents of one input. `text_field` is the field of a JSONL line that
// holds the text.
absl::StatusOr<std::unique_ptr<DocumentReader>> OpenDocuments(
    const TextInput& input, const std::string& text_field);

// The documents of all inputs, one after the other.
std::unique_ptr<DocumentReader> ReadAllDocuments(std::vector<TextInput> inputs,
                                                 std::string text_field);

// The size of the first piece of `text` in bytes: all of it if it is at most
// 64 KiB. Otherwise the piece ends after a line, else before a space, else
// between characters. Looks at no more than kPieceLookahead bytes.
inline constexpr size_t kPieceBytes = 64 << 10;
inline constexpr size_t kPieceLookahead = kPieceBytes + 4;
size_t FirstPiece(std::string_view text);

// The error for text that is not UTF-8. `rest` begins with the first byte that
// is not, which is byte `offset` of the text of `place`.
absl::Status NotUtf8(std::string_view place, int64_t offset,
                     std::string_view rest);

}  // namespace delink
