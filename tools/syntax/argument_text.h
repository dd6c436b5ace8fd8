// Text of the command line: what is wrong with a number, and help in columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace delink::tools {

// Empty when `text` is a number from `least` to `most`; else what is wrong. The
// largest whole number, and infinity, stand for no upper bound.
std::string WholeNumberProblem(std::string_view text, int64_t least,
                               int64_t most);
std::string NumberProblem(std::string_view text, double least, double most);

// Words in lines that end before column `width`, where the first begins at
// column `begin`.
std::string Wrap(std::string_view text, size_t begin, size_t width);

}  // namespace delink::tools
