// The nearest valid numbers to an invalid one, for messages.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace delink {

// "2 or 4": the nearest numbers below and above `number` for which `good`
// holds, at most `most`. It always holds for 1.
template <typename Good>
std::string Nearest(int64_t number, int64_t most, const Good& good) {
  int64_t below = number - 1, above = number + 1;
  while (below > 1 && !good(below)) --below;
  while (above <= most && !good(above)) ++above;
  if (above > most) return absl::StrCat(below);
  return absl::StrCat(below, " or ", above);
}

}  // namespace delink
