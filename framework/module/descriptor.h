// Descriptors: where the values of a logical tensor are under a layout, and
// plans to bring them from one layout to another. Pure functions: resharding,
// loading, saving and switching all are copies between two descriptors.
//
// A tensor has values on a grid (StateExtent): one for each element, or, of
// factored statistics, one for each row or column. Rectangles are of the grid,
// seen as a matrix: WholeOf(StateShape(tensor.shape, grid)).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "framework/module/layout.h"
#include "framework/module/rect.h"

namespace delink {

// A rectangle of a logical tensor on a rank: row by row from value `offset` of
// a parameter of a local slab on, rows `pitch` values apart. Values of the
// parameter are counted as all of them lie there, from the parameter's own
// start, also where the rank has a shard only.
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
// but for statistics of a matrix of which two of its slabs have a part.
using Descriptor = std::vector<Extent>;

// Where `tensor` is in a plane: what every rank has of it, or, of a plane that
// is sharded, its shard. Of a matrix that is cut along the tensor axis all its
// places have the statistics of columns, where rows are cut, or those of rows.
Descriptor DescriptorOf(const Layout& layout, const LogicalTensor& tensor,
                        StateExtent grid, bool sharded);

// Who owns each value of `tensor`: every one is in one extent. Of a local slab
// factored statistics are all of who owns the parameter's first element; what
// several slabs have is the first one's.
Descriptor OwnersOf(const Layout& layout, const LogicalTensor& tensor,
                    StateExtent grid);

// The same where every element of a tensor of this shape has a value and each
// extent is a range of them, as of a vector: one column, and neighbours on a
// rank are one extent. A check where an extent is no range.
Descriptor AsRanges(const Descriptor& extents, const Shape& shape);

// Where a reduction leaves the gradient of each element of `tensor`, whoever
// owns it (Layout::ReducedOn).
Descriptor ReducedOf(const Layout& layout, const LogicalTensor& tensor);

// Whether AsRanges has an answer whose ranges begin and end between grains.
struct Grain;
bool IsInGrains(const Descriptor& extents, const Shape& shape,
                const Grain& grain);

// One rectangle, read once from one place and written to others. The places on
// the rank that reads it come without the network.
struct CopyStep {
  struct Place {
    Extent extent;
    size_t target = 0;  // in `after` of PlanCopy
    friend bool operator==(const Place&, const Place&) = default;
  };
  Extent from;
  std::vector<Place> to;  // the same rectangle, by rank

  // Whether somebody wants it who does not read it.
  bool crosses() const;
  friend bool operator==(const CopyStep&, const CopyStep&) = default;
};

// The steps that bring a tensor from one layout into another, of all ranks, in
// the order of what they read. `owners`: of each value one place before;
// `before`: all places; `after`: all places of each tensor that gets the
// values, of which none is nowhere before. What a rank has already it copies
// from itself; the rest comes from its owner, read once for all who want the
// same rectangle of it: so nothing crosses the network that a rank has, and
// nothing twice to one rank.
std::vector<CopyStep> PlanCopy(const Descriptor& owners,
                               const Descriptor& before,
                               const std::vector<Descriptor>& after);

// Of these, those that `rank` reads or writes, in the same order: with all
// their places where it reads, else with its own. They are as many as what it
// has and wants is in pieces, however many ranks there are.
struct CopyPlan {
  std::vector<CopyStep> steps;
  bool crosses = false;  // whether any step does, of any rank
  bool complete = true;  // false where something that it wants is nowhere
};
CopyPlan PlanCopyOn(int rank, const Descriptor& owners,
                    const Descriptor& before,
                    const std::vector<Descriptor>& after);

// Visits a step in pieces of at most `most` values, until a visit fails, and
// returns what that says. With a grain above 1 extents are ranges (AsRanges),
// `most` is a multiple of it, and pieces end where values number multiples of
// it, counted from `first`, the number of the parameter's first: a check where
// the step itself begins or ends between two, and not with one of the
// `elements` of the parameter.
struct Grain {
  int64_t size = 1;
  int64_t first = 0;
  int64_t elements = 0;
};
absl::Status CutIntoPieces(const CopyStep& step, int64_t most,
                           const Grain& grain,
                           const std::function<absl::Status(CopyStep)>& visit);

}  // namespace delink
