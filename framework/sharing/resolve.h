// From what a person wrote (ShareSpec) to who shares with whom (SharingMap),
// and what a switch from one sharing map to another means. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/module/slab.h"
#include "framework/sharing/share_spec.h"

namespace delink {

// The parts that blocks declare, visited or not, in the order of declaration.
std::vector<std::string> PartsOf(const ParamRegistry& registry, int blocks);

// The map for `blocks` blocks with these parts. Errors: a part that is not
// there (with the list of those that are); a number of sets that does not fit.
absl::StatusOr<SharingMap> ResolveSharing(const ShareSpec& spec,
                                          const std::vector<std::string>& parts,
                                          int blocks);

// The same for a model that is visited as SharingMap::visited says. Blocks that
// are not visited are passed over, and those that have nothing of a part, as
// the attention of a hybrid is not in all; what is left of a set shares, and
// must declare the same parameters.
absl::StatusOr<SharingMap> ResolveSharing(const ShareSpec& spec,
                                          const ParamRegistry& registry,
                                          int blocks,
                                          std::vector<int> visited = {});

// The layer whose slab `layer` uses for its own parameters of `part`.
int LeaderLayer(const SharingMap& sharing, const std::string& part, int layer,
                int blocks);

// For each block, how many use the slab that it uses for `part`; none of one
// that is not visited.
std::vector<int> Sharers(const SharingMap& sharing, const std::string& part,
                         int blocks);

// Where the contents of a slab come from at a switch.
struct SlabOrigin {
  int slab = 0;         // among the slabs before; -1: it begins fresh
  int before = 1;       // layers that shared that slab
  int after = 1;        // layers that share the new one
  bool copied = false;  // for blocks alone that were not visited before
  bool fresh() const { return slab < 0; }
  bool changed() const { return before != after || copied; }
  friend bool operator==(const SlabOrigin&, const SlabOrigin&) = default;
};

// For each slab under `to` the slab under `from` that its layers used. `to`
// must only cut links: layers that share under `to` shared under `from`, and
// both visit the same; else an error that names the part and two layers, or
// what is visited.
absl::StatusOr<std::vector<SlabOrigin>> RelationOf(
    const ParamRegistry& registry, int blocks, const SharingMap& from,
    const SharingMap& to);

}  // namespace delink
