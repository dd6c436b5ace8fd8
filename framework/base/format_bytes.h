// Amounts of memory for people.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace delink {

// "12.3 MiB".
std::string FormatBytes(int64_t bytes);

// Two amounts with as many decimals as it takes to tell them apart: "1.20 MiB"
// and "1.22 MiB".
std::pair<std::string, std::string> FormatBytesApart(int64_t a, int64_t b);

}  // namespace delink
