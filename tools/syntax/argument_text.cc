#include "tools/syntax/argument_text.h"

#include <cmath>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace delink::tools {
namespace {

absl::string_view View(std::string_view text) {
  return {text.data(), text.size()};
}

}  // namespace

std::string WholeNumberProblem(std::string_view text, int64_t least,
                               int64_t most) {
  int64_t value = 0;
  if (absl::SimpleAtoi(View(text), &value) && value >= least && value <= most) {
    return "";
  }
  const bool bounded = most != std::numeric_limits<int64_t>::max();
  return absl::StrCat("'", View(text), "' is not a whole number from ", least,
                      bounded ? absl::StrCat(" to ", most) : " up");
}

std::string NumberProblem(std::string_view text, double least, double most) {
  double value = 0;
  if (absl::SimpleAtod(View(text), &value) && value >= least && value <= most) {
    return "";
  }
  return absl::StrCat("'", View(text), "' is not a number from ", least,
                      std::isinf(most) ? " up" : absl::StrCat(" to ", most));
}

std::string Wrap(std::string_view text, size_t begin, size_t width) {
  std::string wrapped;
  size_t column = begin;
  for (const absl::string_view word : absl::StrSplit(View(text), ' ')) {
    const bool first = column == begin;
    if (!first && column + 1 + word.size() > width) {
      absl::StrAppend(&wrapped, "\n", word);
      column = begin + word.size();
    } else {
      absl::StrAppend(&wrapped, first ? "" : " ", word);
      column += word.size() + (first ? 0 : 1);
    }
  }
  return wrapped;
}

}  // namespace delink::tools
