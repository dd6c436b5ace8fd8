// From a user's ShareSpec to a SharingMap, and from two sharing maps to the
// origins of slabs at a switch. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/module/slab.h"
#include "framework/sharing/share_spec.h"

namespace delink {

// The parts that blocks declare, visited or not, in the order of declaration.
std::vector<std::string> PartsOf(const ParamRegistry& registry, int blocks);

// The map for `blocks` blocks with these parts. Errors: an unknown part (with
// the list of known ones); a number of sets that does not fit.
absl::StatusOr<SharingMap> ResolveSharing(const ShareSpec& spec,
                                          const std::vector<std::string>& parts,
                                          int blocks);

// The same for a model of which `visited` blocks are visited (as in
// SharingMap). Blocks that are not visited, or lack a part, as some blocks of a
// hybrid lack attention, are left out of their set. The rest of a set shares,
// and must declare the same parameters.
absl::StatusOr<SharingMap> ResolveSharing(const ShareSpec& spec,
                                          const ParamRegistry& registry,
                                          int blocks,
                                          std::vector<int> visited = {});

// The layer whose slab `layer` uses for its own parameters of `part`.
int LeaderLayer(const SharingMap& sharing, const std::string& part, int layer,
                int blocks);

// For each block, how many blocks use its slab for `part`; 0 if the block is
// not visited.
std::vector<int> Sharers(const SharingMap& sharing, const std::string& part,
                         int blocks);

// Where a slab's contents come from at a switch.
struct SlabOrigin {
  int slab = 0;         // among the slabs before; -1: it begins fresh
  int before = 1;       // layers that shared that slab
  int after = 1;        // layers that share the new one
  bool copied = false;  // only blocks that were not visited before use it
  bool fresh() const { return slab < 0; }
  bool changed() const { return before != after || copied; }
  friend bool operator==(const SlabOrigin&, const SlabOrigin&) = default;
};

// For each slab under `to`, the slab under `from` that its layers used. `to`
// may only cut links: layers that share under `to` must share under `from`, and
// both must visit the same blocks. Else an error names the part and two layers,
// or the visited blocks.
absl::StatusOr<std::vector<SlabOrigin>> RelationOf(
    const ParamRegistry& registry, int blocks, const SharingMap& from,
    const SharingMap& to);

}  // namespace delink
