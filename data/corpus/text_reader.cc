#include "data/corpus/text_reader.h"

#include <utility>

#include "data/tokenizer/utf8.h"
#include "framework/base/status_macros.h"

namespace delink {

absl::Status TextReader::Fill() {
  const size_t old = buffer_.size();
  const int64_t room = static_cast<int64_t>(kPieceLookahead - old);
  buffer_.resize(kPieceLookahead);
  DELINK_ASSIGN_OR_RETURN(const int64_t got,
                          source_.Read(buffer_.data() + old, room));
  buffer_.resize(old + static_cast<size_t>(got));
  ended_ = got < room;
  return absl::OkStatus();
}

absl::StatusOr<TextPiece> TextReader::Next() {
  if (!ended_) DELINK_RETURN_IF_ERROR(Fill());
  const Utf8Scan scan = ScanUtf8(buffer_);
  if (scan.valid < buffer_.size() && (!scan.incomplete || ended_)) {
    return NotUtf8(source_.name(), consumed_ + static_cast<int64_t>(scan.valid),
                   std::string_view(buffer_).substr(scan.valid));
  }
  // Before the end of the file the buffer is longer than a piece.
  const size_t size = FirstPiece(buffer_);
  TextPiece piece = {.text = buffer_.substr(0, size),
                     .begins = consumed_ == 0,
                     .ends = ended_ && size == buffer_.size()};
  buffer_.erase(0, size);
  consumed_ += static_cast<int64_t>(size);
  return piece;
}

}  // namespace delink
