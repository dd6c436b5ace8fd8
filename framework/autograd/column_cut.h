// Which columns of an activation a rank of VisitGroups::tensor has, where it
// has some of them: between a product whose rows of weights are cut and one
// whose columns are. What goes by the number of a column in the whole, as a
// mask that all ranks draw together, asks Tape::columns.
#pragma once

#include <cstdint>
#include <vector>

namespace delink {

// Of one of the matrices that are stacked in a product, of `of` columns from
// number `matrix` of the whole on, columns [first, first + count).
struct ColumnPiece {
  int64_t matrix = 0;
  int64_t of = 0;
  int64_t first = 0;
  int64_t count = 0;
};

// The pieces that are here, one behind the other.
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
