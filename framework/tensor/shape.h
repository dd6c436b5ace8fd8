// The extents of a dense row-major tensor: at most six, without allocation.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <span>
#include <string>

#include "framework/base/check.h"

namespace delink {

class Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims)
      : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims)
      : rank_(static_cast<int>(dims.size())) {
    DELINK_CHECK_LE(rank_, kMaxRank);
    for (int i = 0; i < rank_; ++i) {
      DELINK_CHECK_GE(dims[i], 0);
      dims_[i] = dims[i];
    }
  }

  int rank() const { return rank_; }
  // Negative axes count from the end.
  int64_t operator[](int axis) const {
    const int at = axis < 0 ? axis + rank_ : axis;
    DELINK_CHECK(at >= 0 && at < rank_) << "axis " << axis << " of " << rank_;
    return dims_[at];
  }
  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= dims_[i];
    return n;
  }
  std::span<const int64_t> dims() const {
    return {dims_.data(), static_cast<size_t>(rank_)};
  }
  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_; ++i) {
      if (a.dims_[i] != b.dims_[i]) return false;
    }
    return true;
  }

  std::string ToString() const {
    std::string text = "[";
    for (int i = 0; i < rank_; ++i) {
      text += (i > 0 ? ", " : "") + std::to_string(dims_[i]);
    }
    return text + "]";
  }
  friend std::ostream& operator<<(std::ostream& out, const Shape& shape) {
    return out << shape.ToString();
  }

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

}  // namespace delink
