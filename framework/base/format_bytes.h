// Amounts of memory for people.
#pragma once

#include <cstdint>
#include <string>

namespace delink {

// "12.3 MiB".
std::string FormatBytes(int64_t bytes);

}  // namespace delink
