#include "framework/sharing/resolve.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/at.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

bool IsBlock(int layer, int blocks) { return layer >= 1 && layer <= blocks; }

// A block's declarations in a part: names within the block, and shapes.
using Declared = std::vector<std::pair<std::string, std::string>>;

// By part and block.
std::map<std::pair<std::string, int>, Declared> DeclaredIn(
    const ParamRegistry& registry, int blocks) {
  std::map<std::pair<std::string, int>, Declared> declared;
  for (const ParamDecl& decl : registry.decls) {
    if (decl.link >= 0 || !IsBlock(decl.layer, blocks)) continue;
    declared[{decl.part, decl.layer - 1}].emplace_back(
        decl.local, decl.spec.shape.ToString());
  }
  return declared;
}

absl::Status CheckParts(const ShareSpec& spec,
                        const std::vector<std::string>& parts) {
  for (const auto& [part, policy] : spec.parts) {
    if (std::find(parts.begin(), parts.end(), part) != parts.end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("share: blocks have no part '", part,
                     "'; they have: ", absl::StrJoin(parts, ", ")));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> PartsOf(const ParamRegistry& registry, int blocks) {
  std::vector<std::string> parts;
  for (const ParamDecl& decl : registry.decls) {
    if (decl.link >= 0 || !IsBlock(decl.layer, blocks)) continue;
    if (std::find(parts.begin(), parts.end(), decl.part) == parts.end()) {
      parts.push_back(decl.part);
    }
  }
  return parts;
}

absl::StatusOr<SharingMap> ResolveSharing(const ShareSpec& spec,
                                          const std::vector<std::string>& parts,
                                          int blocks) {
  DELINK_RETURN_IF_ERROR(CheckParts(spec, parts));
  SharingMap map;
  for (const std::string& part : parts) {
    const SharePolicy policy = spec.For(part);
    if (const absl::Status status = CheckSharePolicy(policy, blocks);
        !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("share of ", part, ": ", status.message()));
    }
    if (ShareSets(policy, blocks) == blocks) continue;
    std::map<int64_t, int> first;  // block, by set
    std::vector<int>& leaders = map.leaders[part];
    for (int block = 0; block < blocks; ++block) {
      leaders.push_back(first.emplace(ShareSetOf(policy, blocks, block), block)
                            .first->second);
    }
  }
  return map;
}

absl::StatusOr<SharingMap> ResolveSharing(const ShareSpec& spec,
                                          const ParamRegistry& registry,
                                          int blocks,
                                          std::vector<int> visited) {
  const std::vector<std::string> parts = PartsOf(registry, blocks);
  DELINK_ASSIGN_OR_RETURN(SharingMap map, ResolveSharing(spec, parts, blocks));
  map.visited = std::move(visited);
  auto declared = DeclaredIn(registry, blocks);
  for (auto& [part, leaders] : map.leaders) {
    std::map<int, int> first;  // block that has the part, by leader of all
    for (int block = 0; block < blocks; ++block) {
      const Declared& here = declared[{part, block}];
      int& leader = At(leaders, block);
      if (!map.Visits(block)) {
        leader = -1;
        continue;
      }
      leader =
          here.empty() ? block : first.emplace(leader, block).first->second;
      if (here == declared[{part, leader}]) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "share: blocks ", leader, " and ", block,
          " declare different parameters in ", part,
          ", so they cannot share it; give that part the policy none"));
    }
  }
  return map;
}

int LeaderLayer(const SharingMap& sharing, const std::string& part, int layer,
                int blocks) {
  if (!IsBlock(layer, blocks)) return layer;
  return sharing.Leader(part, layer - 1) + 1;
}

std::vector<int> Sharers(const SharingMap& sharing, const std::string& part,
                         int blocks) {
  std::vector<int> of_leader(static_cast<size_t>(blocks), 0);
  std::vector<int> sharers(of_leader);
  const std::vector<int> visited = sharing.VisitedOf(blocks);
  for (const int block : visited) ++At(of_leader, sharing.Leader(part, block));
  for (const int block : visited) {
    At(sharers, block) = At(of_leader, sharing.Leader(part, block));
  }
  return sharers;
}

absl::StatusOr<std::vector<SlabOrigin>> RelationOf(
    const ParamRegistry& registry, int blocks, const SharingMap& from,
    const SharingMap& to) {
  const std::vector<int> visited = to.VisitedOf(blocks);
  if (from.VisitedOf(blocks) != visited) {
    return absl::InvalidArgumentError(
        absl::StrCat("blocks ", absl::StrJoin(visited, ","),
                     " are visited after the switch, but before it blocks ",
                     absl::StrJoin(from.VisitedOf(blocks), ","),
                     ": a switch only cuts links, so both must be the same"));
  }
  for (const std::string& part : PartsOf(registry, blocks)) {
    for (const int block : visited) {
      const int leader = to.Leader(part, block);
      if (from.Leader(part, block) == from.Leader(part, leader)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "blocks ", leader, " and ", block, " share ", part,
          " after the switch but did not before it: a switch only cuts links, "
          "so each stage must share no more than the one before"));
    }
  }
  const std::vector<Slab> old_slabs = LayOutSlabs(registry, blocks, from);
  std::map<std::pair<int, std::string>, int> index;  // by leader and part
  for (size_t s = 0; s < old_slabs.size(); ++s) {
    index[{old_slabs[s].leader, old_slabs[s].part}] = static_cast<int>(s);
  }
  std::map<std::string, std::vector<int>> before, after;  // sharers, by part
  for (const std::string& part : PartsOf(registry, blocks)) {
    before[part] = Sharers(from, part, blocks);
    after[part] = Sharers(to, part, blocks);
  }
  std::vector<SlabOrigin> origins;
  for (const Slab& slab : LayOutSlabs(registry, blocks, to)) {
    const int leader = LeaderLayer(from, slab.part, slab.leader, blocks);
    const auto at = index.find({leader, slab.part});
    DELINK_CHECK(at != index.end()) << slab.name << " comes from nowhere";
    origins.push_back({.slab = at->second});
    if (!IsBlock(slab.leader, blocks)) continue;
    const auto block = static_cast<size_t>(slab.leader - 1);
    origins.back().before = before[slab.part][block];
    origins.back().after = after[slab.part][block];
  }
  return origins;
}

}  // namespace delink
