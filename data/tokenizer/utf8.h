// Finds where text is not UTF-8 (Unicode 15, table 3-7: no overlong forms, no
// surrogates, nothing past U+10FFFF).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace delink {

inline uint8_t ByteAt(std::string_view text, size_t at) {
  return static_cast<uint8_t>(text[at]);
}

struct Utf8Scan {
  size_t valid = 0;         // the bytes before the first that is not UTF-8
  bool incomplete = false;  // a character cut short by the end follows them
};

Utf8Scan ScanUtf8(std::string_view text);

// InvalidArgument naming the first byte that is not.
absl::Status CheckUtf8(std::string_view text);

// The largest position <= `at` that does not lie inside a character of `text`,
// which is UTF-8.
size_t CharacterBoundary(std::string_view text, size_t at);

// Text with every byte that is not UTF-8 replaced by U+FFFD.
std::string ReplaceInvalidUtf8(std::string_view text);

}  // namespace delink
