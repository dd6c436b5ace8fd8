// Descriptors: where the elements of a logical tensor are, and plans to bring
// them from one layout to another. Pure functions: resharding, loading, saving
// and switching all are copies between two descriptors.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/module/placement.h"
#include "framework/module/slab.h"

namespace delink {

// All ranks hold it.
inline constexpr int kEveryRank = -1;

// Logical elements [begin, begin + count), row-major, lie in order at `offset`
// of `slab` on `rank`. Offsets are elements from the slab's start, as
// ParamStore::at takes them, also where the rank holds a shard only.
struct Extent {
  int64_t begin = 0;
  int64_t count = 0;
  int rank = kEveryRank;
  int slab = 0;
  int64_t offset = 0;
  friend bool operator==(const Extent&, const Extent&) = default;
};

// Ascending, not empty, without gap or overlap: every element exactly once.
struct Descriptor {
  std::vector<Extent> extents;
  int64_t elements() const {
    return extents.empty() ? 0 : extents.back().begin + extents.back().count;
  }
  friend bool operator==(const Descriptor&, const Descriptor&) = default;
};

// Where `tensor` lies in its `slab`. Sharded over `ranks`: an extent for each
// rank that has a piece of it (which is also who owns it, whether or not the
// planes are sharded), or one where the slab has one `owner`. Else one extent,
// on every rank.
Descriptor DescriptorOf(const LogicalTensor& tensor, const Slab& slab,
                        int ranks, bool sharded, int owner = kNoOwner);

// `count` elements from one place to another. A source on every rank is read by
// the destination where it is; a destination on every rank gets it everywhere.
struct CopyStep {
  int64_t begin = 0;  // logical
  int64_t count = 0;
  int from_rank = kEveryRank, from_slab = 0;
  int64_t from_offset = 0;
  int to_rank = kEveryRank, to_slab = 0;
  int64_t to_offset = 0;
  // Whether the elements stay on the rank they are on.
  bool local() const { return from_rank == kEveryRank || from_rank == to_rank; }
  friend bool operator==(const CopyStep&, const CopyStep&) = default;
};

// The steps that bring one tensor from `from` to `to`, ascending: the fewest
// that there are. Both must describe the same number of elements.
std::vector<CopyStep> PlanCopy(const Descriptor& from, const Descriptor& to);

}  // namespace delink
