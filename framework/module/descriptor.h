// Descriptors: where the elements of a logical tensor are under a layout, and
// plans to bring them from one layout to another. Pure functions: resharding,
// loading, saving and switching all are copies between two descriptors.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/module/layout.h"
#include "framework/module/rect.h"

namespace delink {

// A rectangle of a logical tensor on a rank: row by row from element `offset`
// of a local slab on (counted from the slab's start, also where the rank has a
// shard only), rows `pitch` elements apart.
struct Extent {
  Rect rect;
  int rank = 0;
  int slab = 0;  // in Layout::local_slabs
  int64_t offset = 0;
  int64_t pitch = 0;
  friend bool operator==(const Extent&, const Extent&) = default;
};

// A part of an extent.
Extent Part(const Extent& extent, const Rect& rect);

// By rank, and in the order of a rank's memory. No element is twice on a rank.
using Descriptor = std::vector<Extent>;

// Where `tensor` is in a plane: what every rank has of it, or, of a plane that
// is sharded, what every rank owns of it: then each element is in one extent.
Descriptor DescriptorOf(const Layout& layout, const LogicalTensor& tensor,
                        bool sharded);

// One rectangle, read once from one place and written to others. The places on
// the rank that reads it come without the network.
struct CopyStep {
  Extent from;
  std::vector<Extent> to;  // the same rectangle, by rank
};

// The steps that bring a tensor from one layout into another, of all ranks.
// `owners`: of each element one place before; `before` and `after`: all places.
// What a rank has already it copies from itself; the rest comes from its owner,
// read once for all who want the same of it: so nothing crosses the network
// that a rank has, and nothing twice.
std::vector<CopyStep> PlanCopy(const Descriptor& owners,
                               const Descriptor& before,
                               const Descriptor& after);

}  // namespace delink
