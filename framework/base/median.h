// The median of numbers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "framework/base/check.h"

namespace delink {

// The upper of two in the middle. `values`: at least one, none of them NaN.
inline double Median(std::vector<double> values) {
  DELINK_CHECK(!values.empty());
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace delink
