#include "framework/comm/link.h"

#include <cmath>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace delink {
namespace {

bool Number(std::string_view text, double* value) {
  return absl::SimpleAtod(absl::string_view(text.data(), text.size()), value) &&
         std::isfinite(*value);
}

}  // namespace

absl::StatusOr<Link> ParseLink(std::string_view text) {
  Link link;
  const size_t comma = text.find(',');
  if (comma != std::string_view::npos &&
      Number(text.substr(0, comma), &link.latency) && link.latency >= 0 &&
      Number(text.substr(comma + 1), &link.bytes_per_second) &&
      link.bytes_per_second > 0) {
    return link;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", absl::string_view(text.data(), text.size()),
                   "' is not a link; give its latency in seconds and its bytes "
                   "a second, such as 0.005,1e9"));
}

}  // namespace delink
