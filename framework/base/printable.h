// Text from files of unknown origin, made safe for a terminal, which would obey
// control characters.
#pragma once

#include <string>
#include <string_view>

namespace delink {

// `text` with control characters except line feeds and tabs escaped as
// "\u001b", which JSON and TOML read back. For everything that users see.
std::string Printable(std::string_view text);

}  // namespace delink
