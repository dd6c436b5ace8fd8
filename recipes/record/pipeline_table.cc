#include "recipes/record/pipeline_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "recipes/record/progress.h"

namespace delink {

std::string PipelineTable(const std::vector<PipelineRow>& rows,
                          const std::vector<TableColumn>& besides) {
  std::vector<TableColumn> columns = {
      {.heading = "pipeline stage"},
      {.heading =
           rows.front().first_rank < rows.front().last_rank ? "ranks" : "rank"},
      {.heading = "layers"},
      {.heading = "parameters"}};
  for (size_t s = 0; s < rows.size(); ++s) {
    const PipelineRow& row = rows[s];
    std::string ranks = absl::StrCat(row.first_rank);
    if (row.last_rank > row.first_rank) {
      absl::StrAppend(&ranks, "..", row.last_rank);
    }
    columns[0].cells.push_back(absl::StrCat(s));
    columns[1].cells.push_back(ranks);
    columns[2].cells.push_back(row.layers);
    columns[3].cells.push_back(
        FormatCount(static_cast<double>(row.parameters)));
  }
  columns.insert(columns.end(), besides.begin(), besides.end());
  std::vector<std::string> lines(rows.size() + 1);
  for (const TableColumn& column : columns) {
    size_t width = column.heading.size();
    for (const std::string& cell : column.cells) {
      width = std::max(width, cell.size());
    }
    const char* const gap = lines.front().empty() ? "" : "  ";
    for (size_t l = 0; l < lines.size(); ++l) {
      absl::StrAppendFormat(&lines[l], "%s%*s", gap, static_cast<int>(width),
                            l == 0 ? column.heading : column.cells[l - 1]);
    }
  }
  std::string text;
  for (const std::string& line : lines) absl::StrAppend(&text, line, "\n");
  return text;
}

}  // namespace delink
