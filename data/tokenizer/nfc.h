// Unicode's normal form C: a character and its marks become one character if
// such a character exists (https://www.unicode.org/reports/tr15).
#pragma once

#include <string>
#include <string_view>

namespace delink {

// `text` is UTF-8.
std::string Nfc(std::string_view text);

}  // namespace delink
