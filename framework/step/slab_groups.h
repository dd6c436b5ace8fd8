// The communicators of the groups of a store's slabs: which ranks sum a slab's
// gradient and gather its weights together (LocalSlab::group), in the order of
// ranks. Groups are sets of ranks: slabs of the same ranks share a
// communicator, and those of all ranks that of the world.
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
    bool stages = false;  // OfDataPlace is asked for
    bool visits = false;  // OfVisits is
  };
  // Collective over `world`, the ranks of the store's layout, also for ranks
  // that have none of a group's slabs: all ranks split alike, by the layout.
  // Operations are in the order of `stream`. All that is given outlives it.
  static absl::StatusOr<std::unique_ptr<SlabGroups>> Create(
      const ParamStore& store, Device& device, Stream& stream,
      Communicator& world, const Options& options);

  // By slab of the store. One operation at a time of all of them together.
  StreamCommunicator& Of(int slab) const;
  // Of these ranks those with this rank's data place, where they are several.
  StreamCommunicator& OfDataPlace(int slab) const;
  // And of them those of this rank's stage, which work on the same visits: null
  // where it is alone.
  StreamCommunicator* OfVisits(int slab) const;
  // A rank's place in the slab's group; of this rank, and of one of the world
  // that is in it.
  int Place(int slab) const { return PlaceOf(slab, store_.rank()); }
  int PlaceOf(int slab, int rank) const;

 private:
  explicit SlabGroups(const ParamStore& store) : store_(store) {}
  StreamCommunicator& OfRanks(const std::vector<int>& ranks) const;

  const ParamStore& store_;
  // Of the groups that this rank is in, but of the world.
  std::vector<std::unique_ptr<Communicator>> split_;
  std::map<std::vector<int>, std::unique_ptr<StreamCommunicator>> by_ranks_;
};

}  // namespace delink
