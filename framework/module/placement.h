// The placement table: for each slab and each of its planes, whether it is
// sharded over the slab's group, and in which tier it lives. ZeRO stages and
// offloading are rows of this table and nothing else.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace delink {

enum class Tier : uint8_t { kDevice, kHost, kDisk };

struct PlanePlacement {
  bool sharded = false;  // each rank of the group holds its shard only
  Tier tier = Tier::kDevice;
  friend bool operator==(const PlanePlacement&,
                         const PlanePlacement&) = default;
};

struct PlacementRow {
  PlanePlacement weight;
  PlanePlacement gradient;
  PlanePlacement state;  // master and moments
  friend bool operator==(const PlacementRow&, const PlacementRow&) = default;
};

struct PlacementTable {
  std::vector<PlacementRow> rows;  // by slab

  // zero = 0: everything whole; zero = 1: state sharded. With one rank there is
  // nothing to shard, and zero = 1 is the same table as 0.
  static PlacementTable DataParallel(int slabs, int zero, int ranks) {
    PlacementRow row;
    row.state.sharded = zero >= 1 && ranks > 1;
    return {std::vector<PlacementRow>(static_cast<size_t>(slabs), row)};
  }
};

}  // namespace delink
