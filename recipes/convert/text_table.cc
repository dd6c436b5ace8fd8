#include "recipes/convert/text_table.h"

#include <algorithm>
#include <cstddef>

namespace delink {
namespace {

bool IsNumber(const std::string& cell) {
  return !cell.empty() &&
         cell.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace

std::string TextTable(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const std::vector<std::string>& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string blanks(widths[i] - row[i].size(), ' ');
      const bool last = i + 1 == row.size();
      text += i > 0 ? "  " : "";
      if (IsNumber(row[i])) text += blanks + row[i];
      if (!IsNumber(row[i])) text += row[i] + (last ? "" : blanks);
    }
    text += "\n";
  }
  return text;
}

}  // namespace delink
