// Names come from files that others wrote, and a terminal obeys what it is
// shown.
#pragma once

#include <string>
#include <string_view>

namespace delink {

// `text` with its control characters, but line feeds and tabs, written out as
// "\u001b", which JSON and TOML read back. For all that people are shown.
std::string Printable(std::string_view text);

}  // namespace delink
