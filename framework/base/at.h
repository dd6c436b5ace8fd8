// values[index] for an index of any integer or enumeration type. An index out
// of range fails a check.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "framework/base/check.h"

namespace delink {

template <typename Values, typename Index>
decltype(auto) At(Values& values, Index index) {
  const auto at = static_cast<size_t>(index);
  DELINK_CHECK(at < std::size(values))
      << "index " << static_cast<int64_t>(index) << " of " << std::size(values);
  return values[at];
}

}  // namespace delink
