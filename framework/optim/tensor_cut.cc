#include "framework/optim/tensor_cut.h"

#include <algorithm>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/module/cut_rects.h"

namespace delink {

SlabOnRank PlaceOf(const ParamStore& store, int slab) {
  const int program_slab = store.local(slab).program_slab;
  return {.rank = store.rank(),
          .slab = store.layout().LocalSlabOf(program_slab, store.rank())};
}

std::vector<SlabOnRank> SlabsOnRank(const Layout& layout, int logical,
                                    int rank) {
  std::vector<SlabOnRank> slabs;
  const Range locals = layout.LocalSlabsOfLogical(logical);
  for (int64_t s = locals.begin; s < locals.end; ++s) {
    const LocalSlab& local = At(layout.local_slabs(), s);
    if (layout.LocalSlabOf(local.program_slab, rank) != s) continue;
    slabs.push_back({.rank = rank, .slab = static_cast<int>(s)});
  }
  return slabs;
}

std::vector<SlabOnRank> AlongTensor(const Layout& layout,
                                    const SlabOnRank& at) {
  const int program_slab = At(layout.local_slabs(), at.slab).program_slab;
  MeshPlace place = layout.mesh().PlaceOf(at.rank);
  std::vector<SlabOnRank> along;
  for (int i = 0; i < layout.mesh().tensor; ++i) {
    place[Axis::kTensor] = i;
    const int rank = layout.mesh().RankAt(place);
    along.push_back(
        {.rank = rank, .slab = layout.LocalSlabOf(program_slab, rank)});
  }
  return along;
}

bool IsCut(const Layout& layout, int slab, size_t param) {
  const LocalSlab& local = At(layout.local_slabs(), slab);
  const int decl = local.slab.params[param].decl;
  return std::ranges::any_of(
      CutsOf(layout.registry().decl(decl).spec, layout.mesh()),
      [](AxisCut cut) { return cut.axis == Axis::kTensor && cut.pieces > 1; });
}

bool Updates(const Layout& layout, const SlabOnRank& at) {
  const int owner = At(layout.placement().rows, at.slab).owner;
  return owner == kNoOwner || owner == at.rank;
}

bool IsFirstToUpdate(const Layout& layout, const SlabOnRank& at) {
  for (const SlabOnRank& other : AlongTensor(layout, at)) {
    if (other.slab == at.slab && Updates(layout, other)) {
      return other.rank == at.rank;
    }
  }
  return false;
}

bool UpdatesAlongTensor(const Layout& layout, const SlabOnRank& at) {
  return std::ranges::any_of(
      AlongTensor(layout, at),
      [&](const SlabOnRank& other) { return Updates(layout, other); });
}

std::vector<MatrixPiece> PiecesOf(const LocalSlab& local, size_t param,
                                  Range rows) {
  std::vector<MatrixPiece> pieces;
  int64_t first = 0;
  for (const Rect& rect : local.rects[param]) {
    const Rect piece = Overlap(rect, {.row = rows.begin,
                                      .rows = rows.size(),
                                      .column = rect.column,
                                      .columns = rect.columns});
    if (piece.elements() > 0) {
      const int64_t at = first + (piece.row - rect.row) * rect.columns;
      DELINK_CHECK(pieces.empty() ||
                   at == pieces.back().first + pieces.back().rect.elements())
          << local.slab.name;
      pieces.push_back({.rect = piece, .first = at});
    }
    first += rect.elements();
  }
  return pieces;
}

int64_t ElementsOf(const std::vector<MatrixPiece>& pieces) {
  int64_t elements = 0;
  for (const MatrixPiece& piece : pieces) elements += piece.rect.elements();
  return elements;
}

}  // namespace delink
