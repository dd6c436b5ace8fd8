// Which rank has which piece of a parameter that is cut along the tensor axis,
// for updates that must see all of it. Functions of the layout alone, so that
// all ranks of the axis plan the same exchanges. Private to framework/optim.
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
// The local slabs of a logical slab that `rank` has, ascending.
std::vector<SlabOnRank> SlabsOnRank(const Layout& layout, int logical,
                                    int rank);
// The same program slab on the ranks that differ from at.rank only along the
// tensor axis, with at.rank, by place along that axis.
std::vector<SlabOnRank> AlongTensor(const Layout& layout, const SlabOnRank& at);

// Whether params[param] of a local slab is cut along the tensor axis.
bool IsCut(const Layout& layout, int slab, size_t param);

// Updates: whether the rank updates a part of the slab: it is the owner, or the
// slab has no owner. IsFirstToUpdate: whether it is the first that does so
// among ranks that have the slab and differ only along the tensor axis.
bool Updates(const Layout& layout, const SlabOnRank& at);
bool IsFirstToUpdate(const Layout& layout, const SlabOnRank& at);
// Whether any rank of its tensor axis updates the slab; then all of them
// exchange.
bool UpdatesAlongTensor(const Layout& layout, const SlabOnRank& at);

// A piece of a matrix: where it lies in the whole matrix, and the position of
// its first value in the parameter of the local slab.
struct MatrixPiece {
  Rect rect;
  int64_t first = 0;
};
// The pieces that a local slab has of rows [rows.begin, rows.end) of
// params[param], in order; they are contiguous in the local slab.
std::vector<MatrixPiece> PiecesOf(const LocalSlab& local, size_t param,
                                  Range rows);
int64_t ElementsOf(const std::vector<MatrixPiece>& pieces);

}  // namespace delink
