// How tensor parallelism cuts one parameter, as its ParamSpec says, and the
// columns of what it is multiplied with. Pure functions of the declaration, the
// rank's place along the tensor axis and the number of places.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/autograd/column_cut.h"
#include "framework/module/param.h"
#include "framework/module/rect.h"

namespace delink {

// Rows of one of the matrices that a parameter is, or its columns (kIn).
struct Stack {
  int64_t first = 0;
  int64_t count = 0;
};
std::vector<Stack> StacksOf(const ParamSpec& spec);

// Into how many pieces `count` of its rows or columns are cut over `ranks`: one
// for each, or, of fewer units than there are ranks, for some of them.
int PiecesOf(const ParamSpec& spec, int64_t count, int ranks);

// What piece `i` of what is cut into so many has of a parameter.
std::vector<Rect> RectsOf(const ParamSpec& spec, int i, int pieces, int ranks);

// Of a product with the rows of a weight that is Split::kOut, the columns that
// a place has: first those of pieces of its own, then those that other places
// have too (Param::rest).
ColumnCut ColumnsAt(const ParamSpec& spec, int place, int ranks);

}  // namespace delink
