// What is cut along the tensor axis, for updates that must see all of a
// parameter: who has which piece of it. Functions of the layout alone, so that
// all ranks of the axis exchange the same things. Private to framework/optim.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/module/param_store.h"

namespace delink {

// A local slab that `rank` has.
struct SlabOnRank {
  int rank = 0;
  int slab = 0;  // in Layout::local_slabs
};
SlabOnRank PlaceOf(const ParamStore& store, int slab);
// Those of a logical slab, ascending.
std::vector<SlabOnRank> SlabsOnRank(const Layout& layout, int logical,
                                    int rank);
// The same program slab on the ranks that are where its rank is but along the
// tensor axis, by place along that.
std::vector<SlabOnRank> AlongTensor(const Layout& layout, const SlabOnRank& at);

// Whether pieces of params[param] of a local slab are elsewhere too.
bool IsCut(const Layout& layout, int slab, size_t param);

// Whether a rank updates a slab that has one owner or none; of those that do
// and are at one place but along the tensor axis, whether it is the first.
bool Updates(const Layout& layout, const SlabOnRank& at);
bool IsFirstToUpdate(const Layout& layout, const SlabOnRank& at);
// Whether any rank of its tensor axis does: these exchange.
bool UpdatesAlongTensor(const Layout& layout, const SlabOnRank& at);

// A piece of a matrix: where it lies in the whole one, and, in a local slab,
// its first value, counted from the parameter's.
struct MatrixPiece {
  Rect rect;
  int64_t first = 0;
};
// What a local slab has of rows [rows.begin, rows.end) of params[param], in
// order; one behind the other there.
std::vector<MatrixPiece> PiecesOf(const LocalSlab& local, size_t param,
                                  Range rows);
int64_t ElementsOf(const std::vector<MatrixPiece>& pieces);

}  // namespace delink
