#include "framework/step/slab_groups.h"

#include <algorithm>
#include <utility>

#include "framework/base/check.h"
#include "framework/base/status_macros.h"
#include "framework/comm/groups.h"

namespace delink {
namespace {

// Each set of ranks once, in the order in which the layout names them.
std::vector<std::vector<int>> GroupsOf(const Layout& layout) {
  std::vector<std::vector<int>> groups;
  for (const LocalSlab& slab : layout.local_slabs()) {
    if (std::find(groups.begin(), groups.end(), *slab.group) == groups.end()) {
      groups.push_back(*slab.group);
    }
  }
  return groups;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SlabGroups>> SlabGroups::Create(
    const ParamStore& store, Device& device, Stream& stream,
    Communicator& world) {
  std::unique_ptr<SlabGroups> groups(new SlabGroups(store));
  std::vector<std::vector<int>> parts;
  for (std::vector<int>& ranks : GroupsOf(store.layout())) {
    if (static_cast<int>(ranks.size()) == world.size()) {
      groups->by_ranks_[ranks] = StageThroughHost(device, stream, world);
    } else if (ranks.size() > 1) {
      parts.push_back(std::move(ranks));
    }
  }
  DELINK_ASSIGN_OR_RETURN(groups->split_, SplitGroups(world, parts));
  for (size_t i = 0; i < parts.size(); ++i) {
    if (groups->split_[i] == nullptr) continue;
    groups->by_ranks_[parts[i]] =
        StageThroughHost(device, stream, *groups->split_[i]);
  }
  return groups;
}

StreamCommunicator& SlabGroups::Of(int slab) const {
  const auto found = by_ranks_.find(*store_.local(slab).group);
  DELINK_CHECK(found != by_ranks_.end()) << "one rank exchanges nothing";
  return *found->second;
}

int SlabGroups::PlaceOf(int slab, int rank) const {
  const std::vector<int>& group = *store_.local(slab).group;
  const auto at = std::lower_bound(group.begin(), group.end(), rank);
  DELINK_CHECK(at != group.end() && *at == rank)
      << "rank " << rank << " does not have slab " << slab;
  return static_cast<int>(at - group.begin());
}

}  // namespace delink
