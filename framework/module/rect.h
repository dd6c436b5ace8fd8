// Rectangles of a logical tensor, seen as a matrix: its last dimension is the
// columns, all others together are the rows; a vector is one column. A piece
// that tensor parallelism cuts by rows or columns is a few rectangles, and so
// is any contiguous range of elements.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "framework/module/slab.h"
#include "framework/tensor/shape.h"

namespace delink {

struct Rect {
  int64_t row = 0, rows = 0;
  int64_t column = 0, columns = 0;

  int64_t elements() const { return rows * columns; }
  friend bool operator==(const Rect&, const Rect&) = default;
  friend bool operator<(const Rect& a, const Rect& b) {
    return std::tie(a.row, a.rows, a.column, a.columns) <
           std::tie(b.row, b.rows, b.column, b.columns);
  }
};

// All of a tensor.
Rect WholeOf(const Shape& shape);

// The intersection; it has no elements if they do not overlap.
Rect Overlap(const Rect& a, const Rect& b);

// The parts of `rect` outside of `hole`: at most four.
std::vector<Rect> Without(const Rect& rect, const Rect& hole);

// Elements [range.begin, range.end) of `rect`, counted row by row: at most
// three, in order.
std::vector<Rect> Cut(const Rect& rect, Range range);

}  // namespace delink
