#include "data/tokenizer/utf8.h"

#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace delink {
namespace {

// The length of a character that starts with `lead` and the range of its second
// byte; 0 if no character starts with it.
struct Form {
  size_t length = 0;
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
};

Form FormOf(uint8_t lead) {
  if (lead < 0x80) return {1};
  if (lead < 0xC2) return {0};
  if (lead < 0xE0) return {2};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead < 0xF0) return {3};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead < 0xF4) return {4};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

}  // namespace

Utf8Scan ScanUtf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    // Most text is ASCII: eight bytes at a time.
    uint64_t word;
    while (i + sizeof(word) <= text.size()) {
      std::memcpy(&word, text.data() + i, sizeof(word));
      if ((word & 0x8080808080808080ULL) != 0) break;
      i += sizeof(word);
    }
    if (i == text.size()) break;
    const Form form = FormOf(ByteAt(text, i));
    if (form.length == 0) return {i, false};
    for (size_t k = 1; k < form.length; ++k) {
      if (i + k == text.size()) return {i, true};
      const uint8_t byte = ByteAt(text, i + k);
      const uint8_t low = k == 1 ? form.low : 0x80;
      const uint8_t high = k == 1 ? form.high : 0xBF;
      if (byte < low || byte > high) return {i, false};
    }
    i += form.length;
  }
  return {i, false};
}

absl::Status CheckUtf8(std::string_view text) {
  const size_t valid = ScanUtf8(text).valid;
  if (valid == text.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("byte ", valid,
                   " of the text is not UTF-8; convert it, for instance with "
                   "iconv -f latin1 -t utf-8"));
}

size_t CharacterBoundary(std::string_view text, size_t at) {
  if (at >= text.size()) return text.size();
  while (at > 0 && (ByteAt(text, at) & 0xC0) == 0x80) --at;
  return at;
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  while (true) {
    const size_t valid = ScanUtf8(text).valid;
    out += text.substr(0, valid);
    if (valid == text.size()) return out;
    out += "\xEF\xBF\xBD";
    text.remove_prefix(valid + 1);
  }
}

}  // namespace delink
