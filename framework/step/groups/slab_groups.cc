#include "framework/step/groups/slab_groups.h"

#include <algorithm>
#include <set>
#include <utility>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/base/status_macros.h"
#include "framework/comm/groups.h"

namespace delink {
namespace {

// Those of a slab's group that make its gradient of one micro-batch with
// `rank`; of its stage alone, or of all.
std::vector<int> OfOneMicroBatch(const Layout& layout, const LocalSlab& slab,
                                 int rank, bool stage) {
  const Mesh& mesh = layout.mesh();
  const int together =
      mesh.PlacesOfVisit(At(layout.program_slabs(), slab.program_slab).cut);
  const MeshPlace here = mesh.PlaceOf(rank);
  std::vector<int> ranks;
  for (const int other : *slab.group) {
    const MeshPlace there = mesh.PlaceOf(other);
    if (mesh.InStage(there) / together != mesh.InStage(here) / together) {
      continue;
    }
    if (stage && there[Axis::kPipeline] != here[Axis::kPipeline]) continue;
    ranks.push_back(other);
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
  std::set<std::pair<const std::vector<int>*, AxisCut>> seen;
  for (size_t s = 0; s < layout.local_slabs().size(); ++s) {
    const LocalSlab& slab = layout.local_slabs()[s];
    const AxisCut cut = At(layout.program_slabs(), slab.program_slab).cut;
    if (!seen.insert({slab.group.get(), cut}).second) continue;
    add(*slab.group);
    for (const int rank : *slab.group) {
      if (!options.shards || slab.shards == nullptr) break;
      add(layout.GatherGroup(static_cast<int>(s), rank));
      add(layout.ReplicaGroup(static_cast<int>(s), rank));
    }
    if (!options.stages && !options.visits) continue;
    for (const int rank : *slab.group) {
      if (options.stages) add(OfOneMicroBatch(layout, slab, rank, false));
      if (options.visits) add(OfOneMicroBatch(layout, slab, rank, true));
    }
  }
  return groups;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SlabGroups>> SlabGroups::Create(
    const ParamStore& store, Device& device, Stream& stream,
    Communicator& world, const Options& options) {
  std::unique_ptr<SlabGroups> groups(new SlabGroups(store, device, stream));
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

StreamCommunicator& SlabGroups::OfGather(int slab) const {
  return OfRanks(
      store_.layout().GatherGroup(store_.IndexOf(slab), store_.rank()));
}

StreamCommunicator& SlabGroups::OfReplicas(int slab) const {
  return OfRanks(
      store_.layout().ReplicaGroup(store_.IndexOf(slab), store_.rank()));
}

int SlabGroups::HolderInGather(int slab) const {
  const Layout& layout = store_.layout();
  const int local = store_.IndexOf(slab);
  const std::vector<int> ranks = layout.GatherGroup(local, store_.rank());
  const auto at = std::ranges::find_if(ranks, [&](int rank) {
    return layout.WeightsOn(local, rank).size() > 0;
  });
  return static_cast<int>(at - ranks.begin());
}

int SlabGroups::OwnerInReplicas(int slab) const {
  const std::vector<int> ranks =
      store_.layout().ReplicaGroup(store_.IndexOf(slab), store_.rank());
  const auto at = std::ranges::find(ranks, store_.placement(slab).owner);
  return static_cast<int>(at - ranks.begin());
}

std::unique_ptr<Pending> SlabGroups::GatherWeights(int slab, char* copy) const {
  const DType dtype = store_.dtype(slab, Plane::kWeight);
  const int64_t bytes = store_.bytes(slab, Plane::kWeight);  // of this rank's
  const PlacementRow& row = store_.placement(slab);
  StreamCommunicator& group = OfGather(slab);
  const void* const home = store_.home(slab, Plane::kWeight);
  const int64_t first = row.owner == kNoOwner ? group.rank() * bytes : 0;
  if (row.weight.tier == Tier::kDevice) {
    device_.Copy(stream_, copy + first, home, bytes);
  } else {
    device_.CopyFromHost(stream_, copy + first, home, bytes);
  }
  if (row.owner == kNoOwner) {
    return group.AllGather(copy, bytes / SizeOf(dtype), dtype);
  }
  return group.Broadcast(copy, store_.slab(slab).elements, dtype,
                         HolderInGather(slab));
}

StreamCommunicator& SlabGroups::OfMicroBatch(int slab) const {
  return OfRanks(OfOneMicroBatch(store_.layout(), store_.local(slab),
                                 store_.rank(), false));
}

StreamCommunicator* SlabGroups::OfVisits(int slab) const {
  const std::vector<int> ranks =
      OfOneMicroBatch(store_.layout(), store_.local(slab), store_.rank(), true);
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
