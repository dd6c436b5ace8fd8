#include "framework/hdf5/rectangles.h"

#include <algorithm>
#include <utility>

#include "framework/base/check.h"

namespace delink::hdf5 {
namespace {

class Splitter {
 public:
  explicit Splitter(const std::vector<int64_t>& shape)
      : shape_(shape), stride_(shape.size(), 1), start_(shape.size(), 0) {
    for (size_t i = shape.size() - 1; i > 0; --i) {
      stride_[i - 1] = stride_[i] * shape[i];
    }
  }

  // The range within the array that dimensions dim, dim + 1, ... make, for the
  // leading indices in start_.
  void Split(size_t dim, int64_t begin, int64_t end) {
    if (begin >= end) return;
    const int64_t row = stride_[dim];
    const int64_t first_full = (begin + row - 1) / row;
    const int64_t last_full = end / row;
    if (begin / row == (end - 1) / row && end - begin < row) {
      Inner(dim, begin / row, begin % row, begin % row + (end - begin));
      return;
    }
    if (begin % row != 0) Inner(dim, begin / row, begin % row, row);
    if (last_full > first_full) Full(dim, first_full, last_full - first_full);
    if (end % row != 0) Inner(dim, last_full, 0, end % row);
  }

  std::vector<Rectangle> Take() { return std::move(rectangles_); }

 private:
  // Part of row `index` of `dim`.
  void Inner(size_t dim, int64_t index, int64_t begin, int64_t end) {
    start_[dim] = index;
    Split(dim + 1, begin, end);
  }

  void Full(size_t dim, int64_t first, int64_t rows) {
    Rectangle r;
    r.start.assign(shape_.size(), 0);
    r.count = shape_;
    for (size_t i = 0; i < dim; ++i) {
      r.start[i] = start_[i];
      r.count[i] = 1;
    }
    r.start[dim] = first;
    r.count[dim] = rows;
    r.elements = rows * stride_[dim];
    rectangles_.push_back(std::move(r));
  }

  const std::vector<int64_t>& shape_;
  std::vector<int64_t> stride_;
  std::vector<int64_t> start_;
  std::vector<Rectangle> rectangles_;
};

}  // namespace

std::vector<Rectangle> FlatRectangles(const std::vector<int64_t>& shape,
                                      int64_t begin, int64_t end) {
  DELINK_CHECK(!shape.empty());
  if (begin >= end) return {};
  Splitter splitter(shape);
  splitter.Split(0, begin, end);
  return splitter.Take();
}

std::vector<Rectangle> RowRectangles(const std::vector<int64_t>& shape,
                                     int64_t begin, int64_t rows,
                                     int64_t count) {
  DELINK_CHECK(!shape.empty());
  const int64_t width = shape.back();
  const int64_t column = begin % width;
  DELINK_CHECK_LE(column + count, width) << "a range that leaves its row";
  // Rows are the elements of the array that the other dimensions make.
  const std::vector<int64_t> outer(shape.begin(), shape.end() - 1);
  std::vector<Rectangle> rectangles =
      outer.empty()
          ? std::vector<Rectangle>(1)
          : FlatRectangles(outer, begin / width, begin / width + rows);
  for (Rectangle& r : rectangles) {
    r.start.push_back(column);
    r.count.push_back(count);
    r.elements = count * std::max<int64_t>(r.elements, 1);
  }
  return rectangles;
}

}  // namespace delink::hdf5
