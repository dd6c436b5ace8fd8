// The placement table: for each slab and each of its planes, whether it is
// sharded over the slab's group, and in which tier it lives. ZeRO stages and
// offloading are rows of this table and nothing else. A Layout makes it: under
// ZeRO-1 the state is sharded, by whole slabs where updates see whole tensors,
// the largest first, each to the rank of its group that has least; all that a
// logical slab is cut into, to ranks at one place of the mesh but for the
// tensor axis. Where a group is one rank there is nothing to shard.
#pragma once

#include <cstdint>
#include <vector>

namespace delink {

enum class Tier : uint8_t { kDevice, kHost, kDisk };

struct PlanePlacement {
  bool sharded = false;  // each rank of the group holds its shard only
  Tier tier = Tier::kDevice;
  friend bool operator==(const PlanePlacement&,
                         const PlanePlacement&) = default;
};

// Nobody has the slab for himself: every rank owns its shard.
inline constexpr int kNoOwner = -1;

struct PlacementRow {
  PlanePlacement weight;
  PlanePlacement gradient;
  PlanePlacement state;  // master and moments
  // The rank that owns all of the slab, and whose shard of the state is all of
  // it: for updates that need whole tensors.
  int owner = kNoOwner;
  friend bool operator==(const PlacementRow&, const PlacementRow&) = default;
};

struct PlacementTable {
  std::vector<PlacementRow> rows;  // by local slab (layout.h)
};

}  // namespace delink
