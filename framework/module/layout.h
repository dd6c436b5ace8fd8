// The layout of a model over ranks, a pure value: the same on every rank, made
// from the declarations, the sharing and a mesh, before anything is allocated.
// It says which rank has which layers and which pieces of which parameters,
// which ranks sum gradients together, and who owns what. The ParamStore, its
// Binder, the switch and the index of a checkpoint use it.
//
//   logical slab   the whole parameters of one part of one layer: the unit of
//                  sharing, of names and of norms (slab.h)
//   local slab     the part of a logical slab that a group of ranks has. All
//                  ranks of the group have the same rectangles of its tensors,
//                  in the same order. Without tensor and expert parallelism a
//                  slab is one local slab. With it, the parameters cut along an
//                  axis are one local slab for each place along it, and those
//                  that are not cut (norms) are one more. If there are fewer
//                  units than places (ParamSpec::unit), several places have the
//                  same rows: these are one local slab for each set of places.
//                  Exact parameters (ParamSpec::exact) have slabs of their own
//   program slab   the local slabs into which a logical slab is cut in one way
//                  (AxisCut), apart by exactness: each place of a stage has one
//                  of them. Programs count program slabs, and are the same on
//                  all places
//   owner          each element of a local slab has one owner in the group. A
//                  rank owns a shard, cut evenly at blocks, or the whole local
//                  slab (placement.h)
//   cell           a block of a local slab. Cells are numbered in the order of
//                  local slabs; each has one owner, and norms are sums over
//                  cells in this order
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
  // Named as the logical slab. params are the pieces that are here, one after
  // the other, each parameter's rectangles row by row.
  Slab slab;
  int logical = 0;                       // index in Layout::slabs
  std::vector<std::vector<Rect>> rects;  // by slab.params
  std::vector<size_t> params;  // by slab.params: index in the logical slab's
  int64_t first_cell = 0;      // of slab.blocks()
  int program_slab = 0;        // index in Layout::program_slabs
  // The ranks that have it, ascending; local slabs with the same ranks share
  // one list. Their gradients are parts of a sum, except IdenticalOverTensor.
  std::shared_ptr<const std::vector<int>> group;
  // If parts of the group have the weights (Options::shard): how many parts,
  // and by place in the group, the number of the shard that its rank owns.
  // Ranks with the same weights own neighbouring shards. Null: shards are in
  // the group's order.
  int replicas = 1;
  std::shared_ptr<const std::vector<int>> shards;
};

// Local slabs [first, first + cut.pieces); which of them a place of a stage has
// is Mesh::PieceAt.
struct ProgramSlab {
  int logical = 0;
  int first = 0;
  AxisCut cut;
};

// `range` counts values of params[index] in the order of the local slab. Splits
// it into pieces that are contiguous in the logical parameter too, and calls
// visit(piece, first) for each in order; `first` is the position of its first
// value in the logical parameter. A parameter that is not cut is one piece; if
// it is cut by columns, each row is one.
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
    // By place, the layer's chunk of the pipeline, never decreasing: chunk c
    // belongs to stage c mod mesh.pipeline. Empty: one chunk for each stage, as
    // even as possible.
    std::vector<int> chunks;
    // 1: optimizer state is sharded over the group; 2: gradients too; 3:
    // weights too, except those of slabs that several stages use.
    int zero = 0;
    // With sharded weights: so many neighbouring data places have them
    // together, as have the next ones. 0: all.
    int shard = 0;
    // With sharded gradients: each micro-batch's gradients are reduced, and
    // added to the shards.
    bool reduces_micro_batches = false;
    // Tensors that an update must see whole: their slabs have one owner.
    WholeTensors whole_tensors = WholeTensors::kNone;
    // Sequence parallelism: on each rank of the tensor axis, norms and other
    // parameters that are not cut see only their rows of an activation. Their
    // gradients are then parts of a sum; without it they are identical
    // (IdenticalOverTensor).
    bool sequence = false;
  };

  // The registry must outlive the layout.
  static Layout Create(const ParamRegistry& registry, int blocks,
                       const SharingMap& sharing, Options options);

  // The same with the given tiers for the planes of each logical slab.
  Layout WithTiers(const std::vector<SlabTiers>& tiers) const;

  const ParamRegistry& registry() const { return *registry_; }
  int blocks() const { return blocks_; }
  const SharingMap& sharing() const { return sharing_; }
  const Options& options() const { return options_; }
  const Mesh& mesh() const { return options_.mesh; }
  int ranks() const { return options_.mesh.ranks(); }
  // Layers by place, in the order of visits: 0, those of the visited blocks,
  // blocks() + 1. Names and declarations use the layer, its number in the
  // Sequential; steps and memory plans use the place.
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
  // The local slabs of all ranks, in the order of logical slabs, and within one
  // in the order of program_slabs(). placement() has the same order.
  const std::vector<LocalSlab>& local_slabs() const { return local_slabs_; }
  const PlacementTable& placement() const { return placement_; }

  const std::vector<ProgramSlab>& program_slabs() const {
    return program_slabs_;
  }
  // The local slab that is this program slab on `rank`, if its stage has it.
  int LocalSlabOf(int program_slab, int rank) const {
    const ProgramSlab& slab = At(program_slabs_, program_slab);
    return slab.first + PieceOf(rank, slab.cut);
  }

  // The local slabs of a logical slab: [begin, end) of local_slabs.
  Range LocalSlabsOfLogical(int logical) const {
    const auto at = first_local_.begin() + logical;
    return {static_cast<int64_t>(at[0]), static_cast<int64_t>(at[1])};
  }

  // The cells do not depend on zero and whole_tensors. cells(): their number,
  // at most 2048 a logical slab.
  int64_t cells() const;
  Range CellsOfLogical(int logical) const;

  // The layers that `rank` runs, ascending.
  std::vector<int> LayersOf(int rank) const;
  // Indices of the local slabs that `rank` has, ascending.
  std::vector<int> LocalSlabsOf(int rank) const;
  // The elements of a local slab that `rank` owns. Every element has exactly
  // one owner, and nobody outside of the group owns any.
  Range OwnedBy(int local_slab, int rank) const;
  // The elements whose sum is on `rank` after a reduction over the group: its
  // even shard, also if one rank owns the slab.
  Range ReducedOn(int local_slab, int rank) const;
  // The number of this shard among those of the group; -1: not in the group.
  int ShardOf(int local_slab, int rank) const;
  // The elements whose weights are on `rank`.
  Range WeightsOn(int local_slab, int rank) const;
  // Of a rank of the group, ascending: those that together have the weights
  // once, and those that have the same weights.
  std::vector<int> GatherGroup(int local_slab, int rank) const;
  std::vector<int> ReplicaGroup(int local_slab, int rank) const;
  // The elements whose whole gradient is on every place along the tensor axis;
  // they count as zeros on all but one place. Without `sequence` these are the
  // parameters that are neither cut nor by head; with it there are none.
  std::vector<Range> IdenticalOverTensor(int local_slab) const;

 private:
  Layout() = default;
  using Group = std::shared_ptr<const std::vector<int>>;
  // By the stages of the pipeline and a cut: of each piece.
  using Groups =
      std::map<std::pair<std::set<int>, AxisCut>, std::vector<Group>>;

  int PieceOf(int rank, AxisCut cut) const {
    return mesh().PieceAt(mesh().InStage(mesh().PlaceOf(rank)), cut);
  }
  void CutSlab(int logical, Groups& groups);
  void NumberShards(LocalSlab& local) const;
  template <typename Matches>
  std::vector<int> Among(int local_slab, Matches matches) const;
  // How a parameter may be cut, and whether it is exact: parameters of one
  // program slab have both in common.
  using Way = std::pair<AxisCut, bool>;
  LocalSlab PieceOfSlab(int logical, const std::vector<std::set<Way>>& ways,
                        int i, const Way& way) const;
  std::vector<Group> MakeGroups(const std::set<int>& stages, AxisCut cut) const;
  void PlacePlanes();
  bool IsWhole(const LocalSlab& slab) const;
  bool IsOfOneStage(const Slab& slab) const;
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
