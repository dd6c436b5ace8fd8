// The last values of a series, with their mean and deviation.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

namespace delink {

class RecentValues {
 public:
  struct Spread {
    double mean = 0;
    double deviation = 0;  // standard, of these values alone
  };

  // Begins with `values`, the newest last; may be more than `most`.
  explicit RecentValues(size_t most, const std::vector<double>& values = {})
      : most_(most), values_(values.begin(), values.end()) {}

  // If there are then more than `most`, drops the oldest.
  void Add(double value);
  void Clear() { values_.clear(); }

  // Of the `count` values, at least one, before the `newest` newest ones.
  Spread Of(size_t count, size_t newest = 0) const;

  size_t size() const { return values_.size(); }
  const std::deque<double>& values() const { return values_; }

 private:
  size_t most_;
  std::deque<double> values_;
};

}  // namespace delink
