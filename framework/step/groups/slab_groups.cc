#include "framework/step/groups/slab_groups.h"

#include <algorithm>
#include <set>
#include <utility>

#include "framework/base/check.h"
#include "framework/base/status_macros.h"
#include "framework/comm/groups.h"

namespace delink {
namespace {

// Those of a group with that data place, and of that stage, if one is given.
std::vector<int> WithPlace(const Mesh& mesh, const std::vector<int>& group,
                           int data, int stage = -1) {
  std::vector<int> ranks;
  for (const int rank : group) {
    const MeshPlace place = mesh.PlaceOf(rank);
    if (place[Axis::kData] != data) continue;
    if (stage < 0 || place[Axis::kPipeline] == stage) ranks.push_back(rank);
  }
  return ranks;
}

// Each set of several ranks once, in the order in which the layout names them.
std::vector<std::vector<int>> GroupsOf(const Layout& layout,
                                       const SlabGroups::Options& options) {
  std::vector<std::vector<int>> groups;
  std::set<std::vector<int>> known;
  const auto add = [&](const std::vector<int>& ranks) {
    if (ranks.size() > 1 && known.insert(ranks).second) groups.push_back(ranks);
  };
  const Mesh& mesh = layout.mesh();
  std::set<const std::vector<int>*> seen;
  for (const LocalSlab& slab : layout.local_slabs()) {
    if (!seen.insert(slab.group.get()).second) continue;
    add(*slab.group);
    for (int data = 0; data < mesh.data; ++data) {
      if (options.stages) add(WithPlace(mesh, *slab.group, data));
      for (int stage = 0; options.visits && stage < mesh.pipeline; ++stage) {
        add(WithPlace(mesh, *slab.group, data, stage));
      }
    }
  }
  return groups;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SlabGroups>> SlabGroups::Create(
    const ParamStore& store, Device& device, Stream& stream,
    Communicator& world, const Options& options) {
  std::unique_ptr<SlabGroups> groups(new SlabGroups(store));
  std::vector<std::vector<int>> parts;
  for (std::vector<int>& ranks : GroupsOf(store.layout(), options)) {
    if (static_cast<int>(ranks.size()) == world.size()) {
      groups->by_ranks_[ranks] = StageThroughHost(device, stream, world);
    } else {
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

StreamCommunicator& SlabGroups::OfRanks(const std::vector<int>& ranks) const {
  const auto found = by_ranks_.find(ranks);
  DELINK_CHECK(found != by_ranks_.end()) << "one rank exchanges nothing";
  return *found->second;
}

StreamCommunicator& SlabGroups::Of(int slab) const {
  return OfRanks(*store_.local(slab).group);
}

StreamCommunicator& SlabGroups::OfDataPlace(int slab) const {
  const Mesh& mesh = store_.layout().mesh();
  return OfRanks(WithPlace(mesh, *store_.local(slab).group,
                           mesh.PlaceOf(store_.rank())[Axis::kData]));
}

StreamCommunicator* SlabGroups::OfVisits(int slab) const {
  const Mesh& mesh = store_.layout().mesh();
  const MeshPlace place = mesh.PlaceOf(store_.rank());
  const std::vector<int> ranks =
      WithPlace(mesh, *store_.local(slab).group, place[Axis::kData],
                place[Axis::kPipeline]);
  return ranks.size() == 1 ? nullptr : &OfRanks(ranks);
}

int SlabGroups::PlaceOf(int slab, int rank) const {
  const std::vector<int>& group = *store_.local(slab).group;
  const auto at = std::lower_bound(group.begin(), group.end(), rank);
  DELINK_CHECK(at != group.end() && *at == rank)
      << "rank " << rank << " does not have slab " << slab;
  return static_cast<int>(at - group.begin());
}

}  // namespace delink
