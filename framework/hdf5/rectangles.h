// A flat range of a row-major array as rectangles (hyperslabs): at most 2K - 1
// of them with K dimensions. Each rectangle's elements in row-major order are
// consecutive in the flat order, and the rectangles are listed in that order.
#pragma once

#include <cstdint>
#include <vector>

namespace delink::hdf5 {

struct Rectangle {
  std::vector<int64_t> start;  // [K]
  std::vector<int64_t> count;  // [K]
  int64_t elements = 0;
};

// The flat range [begin, end) of an array of `shape`; inside it, or empty.
std::vector<Rectangle> FlatRectangles(const std::vector<int64_t>& shape,
                                      int64_t begin, int64_t end);

// `rows` flat ranges of `count` elements, one per row: the one at `begin`, and
// those below it.
std::vector<Rectangle> RowRectangles(const std::vector<int64_t>& shape,
                                     int64_t begin, int64_t rows,
                                     int64_t count);

}  // namespace delink::hdf5
