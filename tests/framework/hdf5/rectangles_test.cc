#include "framework/hdf5/rectangles.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>

namespace delink::hdf5::rectangles_test {
namespace {

// The flat indices of a rectangle, in its row-major order.
std::vector<int64_t> FlatIndices(const std::vector<int64_t>& shape,
                                 const Rectangle& r) {
  std::vector<int64_t> indices;
  std::vector<int64_t> at = r.start;
  while (true) {
    int64_t flat = 0;
    for (size_t d = 0; d < shape.size(); ++d) flat = flat * shape[d] + at[d];
    indices.push_back(flat);
    size_t d = shape.size();
    while (d > 0 && ++at[d - 1] == r.start[d - 1] + r.count[d - 1]) {
      at[d - 1] = r.start[d - 1];
      --d;
    }
    if (d == 0) return indices;
  }
}

TEST(Rectangles, CoverEveryFlatRangeInOrder) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 3000; ++round) {
    std::vector<int64_t> shape(1 + random() % 4);
    int64_t size = 1;
    for (int64_t& dim : shape) {
      dim = static_cast<int64_t>(1 + random() % 6);
      size *= dim;
    }
    int64_t begin = static_cast<int64_t>(random() % (size + 1));
    int64_t end = static_cast<int64_t>(random() % (size + 1));
    if (begin > end) std::swap(begin, end);
    int64_t next = begin;
    const auto rectangles = FlatRectangles(shape, begin, end);
    EXPECT_LE(rectangles.size(), 2 * shape.size() - 1);
    for (const Rectangle& r : rectangles) {
      const auto indices = FlatIndices(shape, r);
      ASSERT_EQ(static_cast<int64_t>(indices.size()), r.elements);
      for (const int64_t index : indices) ASSERT_EQ(index, next++);
    }
    ASSERT_EQ(next, end);
  }
}

TEST(Rectangles, CoverPartsOfRowsInOrder) {
  std::mt19937_64 random(2);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  for (int round = 0; round < 3000; ++round) {
    std::vector<int64_t> shape(1 + random() % 4);
    int64_t size = 1;
    for (int64_t& dim : shape) {
      dim = 1 + below(6);
      size *= dim;
    }
    const int64_t width = shape.back(), all = size / width;
    const int64_t row = below(all), rows = 1 + below(all - row);
    const int64_t column = below(width), count = 1 + below(width - column);
    std::vector<int64_t> expected, found;
    for (int64_t r = row; r < row + rows; ++r) {
      for (int64_t c = column; c < column + count; ++c) {
        expected.push_back(r * width + c);
      }
    }
    for (const Rectangle& r :
         RowRectangles(shape, row * width + column, rows, count)) {
      const auto indices = FlatIndices(shape, r);
      ASSERT_EQ(static_cast<int64_t>(indices.size()), r.elements);
      found.insert(found.end(), indices.begin(), indices.end());
    }
    ASSERT_EQ(found, expected);
  }
}

TEST(Rectangles, EmptyRangesAndEmptyArrays) {
  EXPECT_TRUE(FlatRectangles({4, 5}, 7, 7).empty());
  EXPECT_TRUE(FlatRectangles({4, 0}, 0, 0).empty());
  EXPECT_EQ(FlatRectangles({4, 5}, 0, 20).size(), 1U);
}

}  // namespace
}  // namespace delink::hdf5::rectangles_test
