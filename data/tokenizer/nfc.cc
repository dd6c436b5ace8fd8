// The one file that includes utf8proc.
#include "data/tokenizer/nfc.h"

#include <utf8proc.h>

#include <cstdint>
#include <cstdlib>

#include "data/tokenizer/utf8.h"
#include "framework/base/check.h"

namespace delink {
namespace {

// Characters below U+0300 change only before a character from U+0300 on. The
// latter begin with this byte or a greater one.
constexpr uint8_t kFirstMark = 0xCC;

void AppendComposed(std::string_view part, std::string& out) {
  unsigned char* composed = nullptr;
  const utf8proc_ssize_t size = ::utf8proc_map(
      reinterpret_cast<const unsigned char*>(part.data()),
      static_cast<utf8proc_ssize_t>(part.size()), &composed,
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  DELINK_CHECK(size >= 0) << ::utf8proc_errmsg(size);
  out.append(reinterpret_cast<const char*>(composed),
             static_cast<size_t>(size));
  std::free(composed);
}

}  // namespace

std::string Nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  size_t done = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (ByteAt(text, at) < kFirstMark) continue;
    // From the character before, which it may change, up to the next ASCII,
    // which does not combine with what precedes it.
    const size_t begin = at == done ? at : CharacterBoundary(text, at - 1);
    size_t end = at;
    while (end < text.size() && ByteAt(text, end) >= 0x80) ++end;
    out += text.substr(done, begin - done);
    AppendComposed(text.substr(begin, end - begin), out);
    done = end;
    at = end - 1;
  }
  return out += text.substr(done);
}

}  // namespace delink
