#include "recipes/run/position/recent_values.h"

#include <cmath>
#include <numeric>

#include "framework/base/check.h"

namespace delink {

void RecentValues::Add(double value) {
  values_.push_back(value);
  if (values_.size() > most_) values_.pop_front();
}

RecentValues::Spread RecentValues::Of(size_t count, size_t newest) const {
  DELINK_CHECK_GE(count, size_t{1});
  DELINK_CHECK_GE(values_.size(), count + newest);
  const auto last = values_.end() - static_cast<std::ptrdiff_t>(newest);
  const auto first = last - static_cast<std::ptrdiff_t>(count);
  const auto n = static_cast<double>(count);
  const double mean = std::accumulate(first, last, 0.0) / n;
  double squares = 0;
  for (auto at = first; at != last; ++at) {
    squares += (*at - mean) * (*at - mean);
  }
  return {.mean = mean, .deviation = std::sqrt(squares / n)};
}

}  // namespace delink
