// The placement table: for each slab and each of its planes, whether it is
// sharded over the slab's group, and in which tier it lives, and where it is
// updated. ZeRO stages and offloading are rows of this table and nothing else.
// A Layout makes it, tiers are what it is told (Layout::WithTiers): under
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
  bool sharded = false;       // each rank of the group holds its shard only
  Tier tier = Tier::kDevice;  // its home
  // Of what is at home elsewhere: a copy of its own on the device, for as long
  // as anybody works on it there.
  bool resident = false;
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
  // Whose memory and kernels an update works in: the device's, or, with all
  // that it reads and writes at home there, the host's.
  Tier update = Tier::kDevice;
  friend bool operator==(const PlacementRow&, const PlacementRow&) = default;
};

// Where a slab's planes are at home and where it is updated, on every rank.
struct SlabTiers {
  Tier weight = Tier::kDevice, gradient = Tier::kDevice, state = Tier::kDevice;
  bool weight_resident = false, gradient_resident = false;
  Tier update = Tier::kDevice;
  friend bool operator==(const SlabTiers&, const SlabTiers&) = default;
};

struct PlacementTable {
  std::vector<PlacementRow> rows;  // by local slab (layout.h)
};

}  // namespace delink
