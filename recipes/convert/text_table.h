// Text in columns, for people.
#pragma once

#include <string>
#include <vector>

namespace delink {

// A line per row; all rows have the same number of cells. A column is as wide
// as its widest cell. Numbers are right-aligned.
std::string TextTable(const std::vector<std::vector<std::string>>& rows);

}  // namespace delink
