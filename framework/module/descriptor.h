// Descriptors: where the values of a logical tensor are under a layout, and
// plans to move them from one layout to another. Pure functions: resharding,
// loading, saving and switching all are copies between two descriptors.
//
// A tensor has values on a grid (StateExtent): one for each element, or, for
// factored statistics, one for each row or column. Rectangles are parts of the
// grid, seen as a matrix: WholeOf(StateShape(tensor.shape, grid)).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "framework/module/layout.h"
#include "framework/module/rect.h"

namespace delink {

// A rectangle of a logical tensor on a rank. It begins at value `offset` of a
// parameter of a local slab; its rows are `pitch` values apart. `offset` counts
// from the parameter's start in the whole local slab, even if the rank has only
// a shard of it.
struct Extent {
  Rect rect;
  int rank = 0;
  int slab = 0;      // in Layout::local_slabs
  size_t param = 0;  // in the local slab's params
  int64_t offset = 0;
  int64_t pitch = 0;
  friend bool operator==(const Extent&, const Extent&) = default;
};

// A part of an extent.
Extent Part(const Extent& extent, const Rect& rect);

// By rank, and in the order of a rank's memory. No value is twice on a rank,
// except statistics of a matrix that is split over two of the rank's slabs.
using Descriptor = std::vector<Extent>;

// Where `tensor` is in a plane: what every rank has of it, or its shard if the
// plane is sharded. If the rows of a matrix are cut along the tensor axis, all
// its places have the statistics of columns; if its columns are cut, those of
// rows.
Descriptor DescriptorOf(const Layout& layout, const LogicalTensor& tensor,
                        StateExtent grid, bool sharded);

// Which rank has which weights of `tensor` (Layout::WeightsOn).
Descriptor WeightsOf(const Layout& layout, const LogicalTensor& tensor);

// Who owns each value of `tensor`: every value is in one extent. The owner of a
// parameter's first element in a local slab owns all its factored statistics
// there. If several slabs have the same statistics, they belong to the first.
Descriptor OwnersOf(const Layout& layout, const LogicalTensor& tensor,
                    StateExtent grid);

// The same extents as ranges of elements, as if the tensor of this shape were a
// vector: one column, and neighbours on a rank are merged. Every element has a
// value, and every extent must be a range (a check).
Descriptor AsRanges(const Descriptor& extents, const Shape& shape);

// Which rank has the summed gradient of each element of `tensor` after a
// reduction (Layout::ReducedOn); that need not be its owner.
Descriptor ReducedOf(const Layout& layout, const LogicalTensor& tensor);

// Whether AsRanges has an answer whose ranges begin and end between grains.
struct Grain;
bool IsInGrains(const Descriptor& extents, const Shape& shape,
                const Grain& grain);

// One rectangle, read once from one place and written to others. Places on the
// rank that reads it do not use the network.
struct CopyStep {
  struct Place {
    Extent extent;
    size_t target = 0;  // in `after` of PlanCopy
    friend bool operator==(const Place&, const Place&) = default;
  };
  Extent from;
  std::vector<Place> to;  // the same rectangle, by rank

  // Whether a rank wants it that does not read it.
  bool crosses() const;
  friend bool operator==(const CopyStep&, const CopyStep&) = default;
};

// The steps of all ranks that move a tensor from one layout to another, in the
// order of what they read. `owners`: one place before of each value; `before`:
// all places; `after`: all places of each tensor that gets the values; each
// value must be somewhere before. A rank copies from itself what it has. The
// owner sends the rest, and reads it once for all ranks that want the same
// rectangle. So no rank is sent what it has, or the same value twice.
std::vector<CopyStep> PlanCopy(const Descriptor& owners,
                               const Descriptor& before,
                               const std::vector<Descriptor>& after);

// The steps of PlanCopy that `rank` reads or writes, in the same order: with
// all their places if it reads, else with its own. Their number depends on the
// pieces that the rank has and wants, not on the number of ranks.
struct CopyPlan {
  std::vector<CopyStep> steps;
  bool crosses = false;  // whether any step does, of any rank
  bool complete = true;  // false if something that it wants is nowhere
};
CopyPlan PlanCopyOn(int rank, const Descriptor& owners,
                    const Descriptor& before,
                    const std::vector<Descriptor>& after);

// Visits a step in pieces of at most `most` values. Stops at the first error
// and returns it. With a grain above 1, extents are ranges (AsRanges), `most`
// is a multiple of the grain, and pieces end at multiples of it. Positions
// count from `first`, the number of the parameter's first value. The step must
// begin and end at multiples or at the ends of the parameter, which has
// `elements` values (a check).
struct Grain {
  int64_t size = 1;
  int64_t first = 0;
  int64_t elements = 0;
};
absl::Status CutIntoPieces(const CopyStep& step, int64_t most,
                           const Grain& grain,
                           const std::function<absl::Status(CopyStep)>& visit);

}  // namespace delink
