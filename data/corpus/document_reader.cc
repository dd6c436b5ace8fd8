#include "data/corpus/document_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "data/corpus/jsonl_reader.h"
#include "data/corpus/text_reader.h"
#include "data/tokenizer/utf8.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

class AllDocuments final : public DocumentReader {
 public:
  AllDocuments(std::vector<TextInput> inputs, std::string text_field)
      : inputs_(std::move(inputs)), text_field_(std::move(text_field)) {}

  absl::StatusOr<TextPiece> Next() override {
    while (true) {
      if (reader_ == nullptr) {
        if (at_ == inputs_.size()) return TextPiece();
        DELINK_ASSIGN_OR_RETURN(reader_,
                                OpenDocuments(inputs_[at_++], text_field_));
      }
      DELINK_ASSIGN_OR_RETURN(TextPiece piece, reader_->Next());
      if (!piece.text.empty()) return piece;
      empty_ += reader_->empty_documents();
      stored_ += reader_->stored_bytes();
      reader_.reset();
    }
  }
  int64_t empty_documents() const override {
    return empty_ + (reader_ ? reader_->empty_documents() : 0);
  }
  int64_t stored_bytes() const override {
    return stored_ + (reader_ ? reader_->stored_bytes() : 0);
  }

 private:
  const std::vector<TextInput> inputs_;
  const std::string text_field_;
  size_t at_ = 0;
  std::unique_ptr<DocumentReader> reader_;
  int64_t empty_ = 0;   // of the inputs before
  int64_t stored_ = 0;  // of the inputs before
};

}  // namespace

absl::StatusOr<std::unique_ptr<DocumentReader>> OpenDocuments(
    const TextInput& input, const std::string& text_field) {
  DELINK_ASSIGN_OR_RETURN(ByteSource source,
                          ByteSource::Open(input.path, input.name));
  std::unique_ptr<DocumentReader> reader;
  if (input.jsonl) {
    reader = std::make_unique<JsonlReader>(std::move(source), text_field);
  } else {
    reader = std::make_unique<TextReader>(std::move(source));
  }
  return reader;
}

std::unique_ptr<DocumentReader> ReadAllDocuments(std::vector<TextInput> inputs,
                                                 std::string text_field) {
  return std::make_unique<AllDocuments>(std::move(inputs),
                                        std::move(text_field));
}

size_t FirstPiece(std::string_view text) {
  if (text.size() <= kPieceBytes) return text.size();
  const size_t newline = text.rfind('\n', kPieceBytes - 1);
  if (newline != std::string_view::npos) return newline + 1;
  const size_t space = text.rfind(' ', kPieceBytes - 1);
  if (space != std::string_view::npos && space > 0) return space;
  return CharacterBoundary(text, kPieceBytes);
}

absl::Status NotUtf8(std::string_view place, int64_t offset,
                     std::string_view rest) {
  const std::string_view mark = rest.substr(0, 2);
  const bool utf16 = offset == 0 && (mark == "\xFF\xFE" || mark == "\xFE\xFF");
  const std::string what = absl::StrCat(
      std::string(place), ": byte ", offset, " (0x",
      absl::Hex(static_cast<unsigned char>(rest.front()), absl::kZeroPad2),
      ") is not UTF-8");
  if (!utf16 && rest.find('\0') != rest.npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, ", and zero bytes follow: this is not text; leave the file out"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, utf16 ? " but the byte order mark of UTF-16" : "",
                   "; convert the file, for instance with iconv -f ",
                   utf16 ? "utf-16" : "latin1", " -t utf-8, or leave it out"));
}

}  // namespace delink
