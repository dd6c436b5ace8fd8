#include "framework/base/format_bytes.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace delink {

std::string FormatBytes(int64_t bytes) {
  constexpr int64_t kUnit = 1024;
  if (bytes < kUnit) return absl::StrCat(bytes, " B");
  const char* const units[] = {"KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes) / kUnit;
  int unit = 0;
  while (value >= kUnit && unit < 3) {
    value /= kUnit;
    ++unit;
  }
  return absl::StrFormat("%.1f %s", value, units[unit]);
}

}  // namespace delink
