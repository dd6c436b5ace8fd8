#include "framework/base/format_bytes.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace delink {

namespace {

std::string Format(int64_t bytes, int decimals) {
  constexpr int64_t kUnit = 1024;
  if (bytes < kUnit) return absl::StrCat(bytes, " B");
  const char* const units[] = {"KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes) / kUnit;
  int unit = 0;
  while (value >= kUnit && unit < 3) {
    value /= kUnit;
    ++unit;
  }
  return absl::StrFormat("%.*f %s", decimals, value, units[unit]);
}

}  // namespace

std::string FormatBytes(int64_t bytes) { return Format(bytes, 1); }

std::pair<std::string, std::string> FormatBytesApart(int64_t a, int64_t b) {
  constexpr int kMost = 9;
  for (int decimals = 1;; ++decimals) {
    std::string first = Format(a, decimals), second = Format(b, decimals);
    if (first != second || a == b || decimals == kMost) {
      return {std::move(first), std::move(second)};
    }
  }
}

}  // namespace delink
