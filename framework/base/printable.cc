#include "framework/base/printable.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/str_format.h"

namespace delink {

std::string Printable(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0};
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const uint8_t c = byte(i);
    // Control characters from U+0080 on are two bytes.
    const bool two = c == 0xc2 && byte(i + 1) >= 0x80 && byte(i + 1) < 0xa0;
    if (two || c == 0x7f || (c < 0x20 && c != '\n' && c != '\t')) {
      shown += absl::StrFormat("\\u%04x", two ? byte(++i) : c);
    } else {
      shown += text[i];
    }
  }
  return shown;
}

}  // namespace delink
