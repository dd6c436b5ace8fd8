// The placement table says where each slab is updated and, for each plane of a
// slab, in which tier it is and whether it is sharded over the slab's group.
// ZeRO stages and offloading are rows of this table and nothing else. A Layout
// makes the table; the caller gives the tiers (Layout::WithTiers).
//
// Under ZeRO-1 the state is sharded unless a group is one rank, under ZeRO-2
// the gradient as well, under ZeRO-3 also the weights. A slab with tensors that
// an update must see whole has one owner. These slabs are assigned in order of
// size, the largest first, each to the rank of its group that has least so far.
// The pieces of a logical slab that are cut along the tensor axis go to ranks
// that differ only along it.
#pragma once

#include <cstdint>
#include <vector>

namespace delink {

enum class Tier : uint8_t { kDevice, kHost, kDisk };

struct PlanePlacement {
  bool sharded = false;       // each rank of the group holds its shard only
  Tier tier = Tier::kDevice;  // where it is kept
  // For a plane that is not kept on the device: it has its own copy there, for
  // as long as anything on the device uses it.
  bool resident = false;
  friend bool operator==(const PlanePlacement&,
                         const PlanePlacement&) = default;
};

// The slab has no single owner: every rank owns its shard.
inline constexpr int kNoOwner = -1;

struct PlacementRow {
  PlanePlacement weight;
  PlanePlacement gradient;
  PlanePlacement state;  // master and moments
  // The rank that owns all of the slab and has all of its state: for updates
  // that need whole tensors.
  int owner = kNoOwner;
  // Whether the device or the host updates the slab. If the host does, all that
  // the update reads and writes is host-resident.
  Tier update = Tier::kDevice;
  friend bool operator==(const PlacementRow&, const PlacementRow&) = default;
};

// The tiers of a slab's planes and of its update, on every rank.
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
