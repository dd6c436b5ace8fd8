// Which columns of an activation a rank of VisitGroups::tensor has, if it has
// only some: between a product whose rows of weights are cut and one whose
// columns are. Ops that need a column's number in the whole, such as a mask
// that all ranks draw alike, ask Tape::columns.
#pragma once

#include <cstdint>
#include <vector>

namespace delink {

// Columns [first, first + count) of one of the matrices that are stacked in a
// product. The matrix has `of` columns; its first is column `matrix` of the
// whole.
struct ColumnPiece {
  int64_t matrix = 0;
  int64_t of = 0;
  int64_t first = 0;
  int64_t count = 0;
};

// The pieces that this rank has, in order.
struct ColumnCut {
  std::vector<ColumnPiece> pieces;

  int64_t here() const {
    int64_t columns = 0;
    for (const ColumnPiece& piece : pieces) columns += piece.count;
    return columns;
  }
  int64_t whole() const {
    int64_t columns = 0;
    for (const ColumnPiece& piece : pieces) columns += piece.of;
    return columns;
  }
};

}  // namespace delink
