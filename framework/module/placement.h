// The placement table: for each slab and each of its planes, whether it is
// sharded over the slab's group, and in which tier it lives. ZeRO stages and
// offloading are rows of this table and nothing else.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/at.h"
#include "framework/module/slab.h"

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
  std::vector<PlacementRow> rows;  // by slab

  const PlacementRow& row(int slab) const { return At(rows, slab); }

  // zero = 0: everything whole; zero = 1: state sharded, by slabs where
  // `whole` says so, the largest first, each to the rank that has least. With
  // one rank there is nothing to shard, and zero = 1 is the same table as 0.
  static PlacementTable DataParallel(const std::vector<Slab>& slabs,
                                     const std::vector<bool>& whole, int zero,
                                     int ranks);
};

}  // namespace delink
