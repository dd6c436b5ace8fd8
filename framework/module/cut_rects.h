// How one parameter is cut, as its ParamSpec says, and the columns of a product
// with it. Pure functions of the declaration, the rank's place and the number
// of places.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "framework/autograd/column_cut.h"
#include "framework/module/mesh.h"
#include "framework/module/param.h"
#include "framework/module/rect.h"

namespace delink {

// Rows that are cut by themselves, or columns (kIn), or elements of a vector;
// counted within each entry (EntriesOf), as all are cut alike.
struct Stack {
  int64_t first = 0;
  int64_t count = 0;
};
std::vector<Stack> StacksOf(const ParamSpec& spec);

// How many pieces `count` rows or columns are cut into over `ranks` ranks: one
// for each rank, or one for each unit if there are fewer units than ranks.
int PiecesOf(const ParamSpec& spec, int64_t count, int ranks);

// The cuts that a mesh makes of a parameter: several if its matrices are cut
// into unlike numbers of pieces.
std::set<AxisCut> CutsOf(const ParamSpec& spec, const Mesh& mesh);

// The rectangles of a parameter that piece `i` of one of its cuts has, entry by
// entry; of experts and of matrices that are cut by columns, one rectangle of
// all.
std::vector<Rect> RectsOf(const ParamSpec& spec, const Mesh& mesh, AxisCut cut,
                          int i);

// For a product with a weight that is Split::kOut: the columns that a place
// has. Columns of its own come first, then those that other places have too
// (Param::rest).
ColumnCut ColumnsAt(const ParamSpec& spec, int place, int ranks);

}  // namespace delink
