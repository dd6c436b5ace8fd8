// Lines for people, in columns.
#pragma once

#include <string>
#include <vector>

namespace delink {

// A line a row, of as many cells each. Cells of a column are as wide as the
// widest; numbers are at its right.
std::string TextTable(const std::vector<std::vector<std::string>>& rows);

}  // namespace delink
