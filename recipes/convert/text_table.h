// Text of conversions, for people.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/format_bytes.h"
#include "recipes/record/progress.h"

namespace delink {

// A line per row; all rows have the same number of cells. A column is as wide
// as its widest cell. Numbers are right-aligned.
std::string TextTable(const std::vector<std::vector<std::string>>& rows);

// What the report of an import or export says: of `what`, and a row for each
// tensor if nothing was written.
template <typename Report>
std::string ReportText(const Report& r, const std::string& what,
                       const std::vector<std::vector<std::string>>& rows) {
  std::string text =
      absl::StrCat(r.written ? "converted " : "would convert ", r.from, "\n",
                   r.written ? "       to " : "           to ", r.to, ": ",
                   what, "\n", r.tensors.size(), " tensors, ",
                   FormatCount(static_cast<double>(r.parameters)),
                   " parameters, ", FormatBytes(r.bytes), "\n");
  for (const std::string& note : r.notes) absl::StrAppend(&text, note, "\n");
  for (const auto& file : r.files) {
    absl::StrAppend(&text, file.digest, "  ", file.name, "\n");
  }
  return r.written ? text : text + TextTable(rows);
}

}  // namespace delink
