// The communicators of a store's slabs: a slab's group is the list of ranks
// that sum its gradient and gather its weights together (LocalSlab::group), in
// order. Slabs with the same ranks share a communicator; those of all ranks use
// the world's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"
#include "framework/comm/stream_communicator.h"
#include "framework/device/backend.h"
#include "framework/module/param_store.h"

namespace delink {

class SlabGroups {
 public:
  struct Options {
    bool stages = false;  // OfMicroBatch will be called
    bool visits = false;  // OfVisits will be called
    bool shards = false;  // OfGather and OfReplicas will be called
  };
  // Collective over `world`, the ranks of the store's layout. All ranks split
  // it alike, by the layout, also ranks that have none of a group's slabs.
  // Operations are in the order of `stream`. The arguments must outlive the
  // result.
  static absl::StatusOr<std::unique_ptr<SlabGroups>> Create(
      const ParamStore& store, Device& device, Stream& stream,
      Communicator& world, const Options& options);

  // By slab of the store. All groups together do one operation at a time.
  StreamCommunicator& Of(int slab) const;
  // The group's ranks, of all stages, that together with this one make the
  // slab's gradient of a micro-batch (Mesh::PlacesOfVisit); they must be
  // several.
  StreamCommunicator& OfMicroBatch(int slab) const;
  // Of these the ranks of this rank's stage, which work on the same visits;
  // null if it is alone.
  StreamCommunicator* OfVisits(int slab) const;
  // Of slabs with sharded weights: Layout::GatherGroup and ReplicaGroup of this
  // rank. The latter must be several.
  StreamCommunicator& OfGather(int slab) const;
  StreamCommunicator& OfReplicas(int slab) const;
  // In OfGather, of a slab with one owner: the place of the rank that has the
  // weights. In OfReplicas: the owner's, if the owner is among them.
  int HolderInGather(int slab) const;
  int OwnerInReplicas(int slab) const;
  // Gathers the slab's weights, sharded, from their homes into `copy`, of
  // whole_bytes.
  std::unique_ptr<Pending> GatherWeights(int slab, char* copy) const;
  // The place in the slab's group of this rank, or of a rank of the world that
  // is in the group.
  int Place(int slab) const { return PlaceOf(slab, store_.rank()); }
  int PlaceOf(int slab, int rank) const;

 private:
  SlabGroups(const ParamStore& store, Device& device, Stream& stream)
      : store_(store), device_(device), stream_(stream) {}
  StreamCommunicator& OfRanks(const std::vector<int>& ranks) const;

  const ParamStore& store_;
  Device& device_;
  Stream& stream_;
  // Of the groups that this rank is in, except the world.
  std::vector<std::unique_ptr<Communicator>> split_;
  std::map<std::vector<int>, std::unique_ptr<StreamCommunicator>> by_ranks_;
};

}  // namespace delink
