#include "recipes/record/pipeline_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "recipes/record/progress.h"

namespace delink {
namespace {

// "3", "0..3", "0,2", "0..1,4..5"; of many that are evenly apart the first two
// and the last: "0,2,...,14".
std::string RanksText(const std::vector<int>& ranks) {
  struct Run {
    int first, last;
  };
  std::vector<Run> runs;
  for (const int rank : ranks) {
    if (runs.empty() || rank != runs.back().last + 1) {
      runs.push_back({rank, rank});
    } else {
      runs.back().last = rank;
    }
  }
  bool even = runs.size() > 4;
  for (size_t i = 1; even && i < runs.size(); ++i) {
    const int apart = runs[1].first - runs[0].first;
    even = runs[i].first - runs[i - 1].first == apart &&
           runs[i].last - runs[i - 1].last == apart;
  }
  std::string text;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (even && i == 2) {
      absl::StrAppend(&text, ",...");
      i = runs.size() - 1;
    }
    absl::StrAppend(&text, i == 0 ? "" : ",", runs[i].first);
    if (runs[i].last > runs[i].first) {
      absl::StrAppend(&text, "..", runs[i].last);
    }
  }
  return text;
}

}  // namespace

std::string PipelineTable(const std::vector<PipelineRow>& rows,
                          const std::vector<TableColumn>& besides) {
  std::vector<TableColumn> columns = {
      {.heading = "pipeline stage"},
      {.heading = rows.front().ranks.size() > 1 ? "ranks" : "rank"},
      {.heading = "layers"},
      {.heading = "parameters"}};
  for (size_t s = 0; s < rows.size(); ++s) {
    const PipelineRow& row = rows[s];
    columns[0].cells.push_back(absl::StrCat(s));
    columns[1].cells.push_back(RanksText(row.ranks));
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
