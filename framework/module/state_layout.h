// Where a rank has the values of one state of one slab: for the ParamStore.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/module/layout.h"
#include "framework/module/state_spec.h"
#include "framework/tensor/dtype.h"

namespace delink {

// The values of one parameter after the other, each parameter at a multiple of
// 64; then the scales of 8-bit values. A state that is elementwise and exact
// for all parameters has the same layout as the slab.
struct StateLayout {
  struct Piece {
    StateFormat format;
    Range held;  // the parameter's values that this rank has
    // The value at `at`: held.begin, or one in the padding after the parameter.
    int64_t first = 0;
    int64_t at = 0;      // bytes from the plane's start
    int64_t scales = 0;  // bytes from the plane's start
  };
  std::vector<Piece> pieces;  // by Slab::params
  int64_t bytes = 0;
};

// For a rank that holds the elements [begin, begin + room) of the slab and of
// the padding after it. With factored statistics this range must have all that
// the slab has of a parameter, or nothing of it; the statistics are those of
// the rows, or columns, of which the slab has a part.
StateLayout LayOutState(const LocalSlab& local, const ParamRegistry& registry,
                        int blocks, const StateSpec& spec, DType exact,
                        int64_t begin, int64_t room);

// The rectangles of a grid of statistics (StateShape) that belong to `rects` of
// the elements of a matrix or of several, in order: those of their rows, or of
// their columns. A rectangle has whole matrices or a part of one (a check).
std::vector<Rect> StatisticsOf(const std::vector<Rect>& rects,
                               const Shape& shape, StateExtent grid);

// Bytes of a value.
int64_t SizeOf(StateStorage storage, DType exact);

// The number of scales of elements [begin, end) of a slab: one for each block
// that has any of them.
int64_t ScalesOf(int64_t begin, int64_t end);

}  // namespace delink
