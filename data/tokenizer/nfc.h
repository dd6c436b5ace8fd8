// Unicode's normal form C: characters and their marks as one, where there is
// one (https://www.unicode.org/reports/tr15).
#pragma once

#include <string>
#include <string_view>

namespace delink {

// `text` is UTF-8.
std::string Nfc(std::string_view text);

}  // namespace delink
