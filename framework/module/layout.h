// The layout of a model over ranks, a pure value: the same on every rank, made
// from the declarations, the sharing and a mesh, before anything is allocated.
// It says which rank has which layers and which pieces of which parameters, who
// sums gradients with whom, and who owns what. The ParamStore, its
// Binder, the switch and the index of a checkpoint ask here; reductions still
// count on data ranks alone.
//
//   logical slab   the parameters of one part of one layer, whole: the unit of
//                  sharing, and what names and norms go by (slab.h)
//   local slab     what some ranks, its group, have of a logical slab: all of
//                  them the same rectangles of its tensors, in the same order.
//                  Without tensor parallelism a slab is one local slab. With
//                  it, what is cut is one for each place along the tensor axis,
//                  what is not cut (norms) another one beside; and rows that
//                  several places have, as there are fewer units than places
//                  (ParamSpec::unit), one for each set of these places
//   program slab   local slabs that are pieces of a logical one in the same way
//                  along the tensor axis: each place has one of them. Programs
//                  count slabs so, and are the same on all places
//   owner          of each element of a local slab one rank of the group: its
//                  shard, cut evenly at blocks, or all of it (placement.h)
//   cell           a block of a local slab. All cells are numbered, one local
//                  slab's after the other's; each has one owner, and norms are
//                  sums over cells in this order
//
// All functions are pure; a layout may be read by any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/at.h"
#include "framework/module/mesh.h"
#include "framework/module/placement.h"
#include "framework/module/rect.h"
#include "framework/module/slab.h"
#include "framework/module/state_spec.h"

namespace delink {

struct LocalSlab {
  // As `slab` of the logical ones; params are the pieces that are here, one
  // after the other, a parameter's rectangles row by row.
  Slab slab;
  int logical = 0;                       // index in Layout::slabs
  std::vector<std::vector<Rect>> rects;  // by slab.params
  std::vector<size_t> params;  // by slab.params: index in the logical slab's
  int64_t first_cell = 0;      // of slab.blocks()
  int program_slab = 0;        // index in Layout::program_slabs
  // The ranks that have it, ascending; of all with the same ranks one list.
  // Their gradients are parts of a sum, but for IdenticalOverTensor.
  std::shared_ptr<const std::vector<int>> group;
};

// Local slabs [first, first + pieces): place p of n along the tensor axis has
// number p * pieces / n of them. 1 piece is what all places have.
struct ProgramSlab {
  int logical = 0;
  int first = 0;
  int pieces = 1;
};

// Calls visit(Range, first) for the pieces of `range`, values of params[index]
// as they lie in the local slab, that are neighbours in the logical parameter
// too, in order: `first` is the number there of a piece's first one. A
// parameter that is not cut is one piece, of what is cut by columns each row is
// one.
template <typename Visit>
void ForEachLogicalRun(const LocalSlab& local, size_t index,
                       const ParamRegistry& registry, Range range,
                       Visit visit) {
  const ParamDecl& decl = registry.decl(local.slab.params[index].decl);
  const int64_t columns = WholeOf(decl.spec.shape).columns;
  int64_t offset = 0;
  for (const Rect& rect : local.rects[index]) {
    const bool rows = rect.columns == columns;
    const int64_t run = rows ? rect.elements() : rect.columns;
    const int64_t end = std::min(range.end, offset + rect.elements());
    for (int64_t at = std::max(range.begin, offset); at < end;) {
      const int64_t row = (at - offset) / run;
      const int64_t next = std::min(end, offset + (row + 1) * run);
      visit(Range{at, next}, (rect.row + row) * columns + rect.column +
                                 (at - offset - row * run));
      at = next;
    }
    offset += rect.elements();
  }
}

class Layout {
 public:
  struct Options {
    Mesh mesh;
    // By place, the layer's chunk of the pipeline, never falling: chunk c is
    // of stage c mod mesh.pipeline. Empty: a chunk a stage, as even as can be.
    std::vector<int> chunks;
    int zero = 0;  // 1: optimizer state is sharded over the group
    // Tensors that an update must see whole: their slabs have one owner.
    WholeTensors whole_tensors = WholeTensors::kNone;
    // Norms and what else is not cut see their own rows of an activation on
    // each rank of the tensor axis, so that their gradients are parts of a sum,
    // where else they are identical (IdenticalOverTensor).
    bool sequence = false;
  };

  // The registry must outlive the layout.
  static Layout Create(const ParamRegistry& registry, int blocks,
                       const SharingMap& sharing, Options options);

  // The same, with other homes of the planes of each logical slab.
  Layout WithTiers(const std::vector<SlabTiers>& tiers) const;

  const ParamRegistry& registry() const { return *registry_; }
  int blocks() const { return blocks_; }
  const SharingMap& sharing() const { return sharing_; }
  const Options& options() const { return options_; }
  const Mesh& mesh() const { return options_.mesh; }
  int ranks() const { return options_.mesh.ranks(); }
  // Layers by place, in the order of visits: 0, those of the visited blocks,
  // blocks() + 1. A layer is a number in the Sequential, and so in names and
  // declarations; steps and plans of memory go by place.
  const std::vector<int>& visited() const { return visited_; }
  int places() const { return static_cast<int>(visited_.size()); }
  int depth() const { return places() - 2; }  // blocks that are visited

  // Logical slabs in the order of their leaders, and the tensors of the layers
  // that are visited.
  const std::vector<Slab>& slabs() const { return slabs_; }
  const std::vector<LogicalTensor>& tensors() const { return tensors_; }
  const ParamSpec& SpecOf(const LogicalTensor& tensor) const {
    return registry_->decl(At(slabs_, tensor.slab).params[tensor.param].decl)
        .spec;
  }
  // The local slabs of all ranks, in the order of logical ones, and of one as
  // program_slabs() has them; and, alike, where their planes are.
  const std::vector<LocalSlab>& local_slabs() const { return local_slabs_; }
  const PlacementTable& placement() const { return placement_; }

  const std::vector<ProgramSlab>& program_slabs() const {
    return program_slabs_;
  }
  // The local slab that is this program slab on `rank`, where its stage has it.
  int LocalSlabOf(int program_slab, int rank) const {
    const ProgramSlab& slab = At(program_slabs_, program_slab);
    return slab.first + PieceOf(mesh().PlaceOf(rank), slab.pieces);
  }

  // Those of a logical slab: [begin, end) of local_slabs.
  Range LocalSlabsOfLogical(int logical) const {
    const auto at = first_local_.begin() + logical;
    return {static_cast<int64_t>(at[0]), static_cast<int64_t>(at[1])};
  }

  // Cells of a mesh are the same whatever zero and whole_tensors are: their
  // number, at most 2048 a logical slab, those of a logical slab, and those of
  // the local slabs that `rank` does not have, ascending.
  int64_t cells() const;
  Range CellsOfLogical(int logical) const;
  std::vector<Range> CellsNotOn(int rank) const;

  // The layers that are at work on `rank`, ascending.
  std::vector<int> LayersOf(int rank) const;
  // Indices of the local slabs that `rank` has, ascending.
  std::vector<int> LocalSlabsOf(int rank) const;
  // The elements of a local slab that `rank` owns. Every element has exactly
  // one owner, and nobody outside of the group owns any.
  Range OwnedBy(int local_slab, int rank) const;
  // The elements of which a reduction by all of the group leaves the sum on
  // `rank`: its even shard, also of a slab that one rank owns.
  Range ReducedOn(int local_slab, int rank) const;
  // The elements of which all places along the tensor axis have the whole
  // gradient, and which count as zeros but on one of them: without `sequence`
  // parameters that are neither cut nor by head.
  std::vector<Range> IdenticalOverTensor(int local_slab) const;

 private:
  Layout() = default;
  using Group = std::shared_ptr<const std::vector<int>>;
  // By the stages of the pipeline and (piece, pieces) along the tensor axis.
  using Groups = std::map<std::pair<std::set<int>, std::pair<int, int>>, Group>;

  int PieceOf(const MeshPlace& place, int pieces) const {
    return place[Axis::kTensor] * pieces / mesh().tensor;
  }
  void CutSlab(int logical, Groups& groups);
  LocalSlab PieceOfSlab(int logical, const std::vector<std::set<int>>& cuts,
                        int i, int pieces) const;
  Group MakeGroup(const std::set<int>& stages, int piece, int pieces) const;
  void PlacePlanes();
  bool IsWhole(const LocalSlab& slab) const;
  int StageOf(int layer) const;

  const ParamRegistry* registry_ = nullptr;
  int blocks_ = 0;
  SharingMap sharing_;
  std::vector<int> visited_;  // layers, by place
  Options options_;
  std::vector<Slab> slabs_;
  std::vector<LogicalTensor> tensors_;
  std::vector<LocalSlab> local_slabs_;
  std::vector<ProgramSlab> program_slabs_;
  std::vector<size_t> first_local_;  // by logical slab, and one behind
  PlacementTable placement_;
};

}  // namespace delink
