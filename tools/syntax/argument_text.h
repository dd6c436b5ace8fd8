// Text of the command line: errors about numbers, and help in columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace delink::tools {

// Empty if `text` is a number from `least` to `most`; else what is wrong. If
// `most` is the largest whole number, or infinity, there is no upper bound.
std::string WholeNumberProblem(std::string_view text, int64_t least,
                               int64_t most);
std::string NumberProblem(std::string_view text, double least, double most);

// Wraps words into lines that end before column `width`. The first line begins
// at column `begin`.
std::string Wrap(std::string_view text, size_t begin, size_t width);

}  // namespace delink::tools
