#include "recipes/saved/json_lines.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/json.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

constexpr char kBlanks[] = " \t\n\v\f\r";

// Enough to mend a file by, few enough to read.
constexpr int kProblemsShown = 10;

}  // namespace

absl::Status ReadJsonLines(const std::string& path, const std::string& empty,
                           const TakeJsonLine& take) {
  DELINK_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::string problems;
  int wrong = 0;
  int64_t number = 0, taken = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const auto line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(kBlanks) == std::string_view::npos) continue;
    ++taken;
    const nlohmann::json row = ParseJson(line);
    const std::string problem =
        row.is_object() ? take(number, row) : "is no JSON object";
    if (!problem.empty() && ++wrong <= kProblemsShown) {
      absl::StrAppend(&problems, wrong > 1 ? "\n" : "", path, ":", number,
                      ": the line ", problem);
    }
  }
  if (wrong > kProblemsShown) {
    absl::StrAppend(&problems, "\n", path, ": and ", wrong - kProblemsShown,
                    " more lines");
  }
  if (wrong > 0) return absl::InvalidArgumentError(problems);
  if (taken > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", empty));
}

std::string TextMember(const nlohmann::json& row, const char* key,
                       std::string* problem) {
  const auto found = row.find(key);
  if (found != row.end() && found->is_string()) {
    return found->get<std::string>();
  }
  if (problem->empty()) {
    *problem = absl::StrCat("has no `", key, "`, which must be a text");
  }
  return "";
}

}  // namespace delink
