// Ranks over which a model's weights are sharded for forward passes: each has
// some rows and columns of the matrices (tensor), some of the layers
// (pipeline), some of the experts (expert), or several of these. All ranks that
// have the weights together work on the same sequences; of other ranks along
// the data axis others. With ZeRO-3 ranks along the data axis have shards of
// the weights too, and gather them for each layer. All ranks then make the same
// passes at the same time, each place() with its own sequences.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"
#include "framework/device/backend.h"
#include "framework/module/param_store.h"
#include "framework/step/groups/gather_lane.h"
#include "framework/step/groups/visit_groups.h"
#include "framework/tensor/tensor.h"

namespace delink {

class ForwardRanks {
 public:
  // Collective over `world`, the ranks of the store's layout, which has no
  // context parallelism. The arguments outlive the result.
  static absl::StatusOr<std::unique_ptr<ForwardRanks>> Create(
      const ParamStore& store, Communicator& world);

  // The stream for visits.
  Stream& stream() const { return *stream_; }
  // The groups of visits on this rank.
  VisitGroups groups() const;
  // Whether this rank visits the layer at `place`.
  bool Has(size_t place) const { return StageOf(place) == stage_; }
  // Sends the output of the layer at `place` from the ranks that have that
  // layer to those that have the next one. Blocks. Does nothing after an error.
  void HandOn(size_t place, const Tensor& output);
  // Ranks that work on the same sequences are at one of places().
  int place() const { return place_[Axis::kData] / data_places_; }
  int places() const { return layout_.mesh().data / data_places_; }
  // Gathers sharded weights; null: none are sharded.
  GatherLane* gathers() const { return gathers_.get(); }
  // Whether this rank's results count. One rank per place() counts; it has the
  // last layer.
  bool counts() const;
  // Broadcasts `bytes` from the last pipeline stage to the others.
  void Tell(void* bytes, int64_t count);
  // OK on each of the ranks of this place(), or of all places if they gather
  // weights together, if it is OK on all of them.
  absl::Status Agree(const absl::Status& status) {
    return AgreeOnStatus(*together_, status);
  }
  // The first error.
  absl::Status status() const;

 private:
  ForwardRanks(const Layout& layout, Device& device)
      : layout_(layout), device_(device), stream_(device.NewStream()) {}
  int StageOf(size_t place) const;

  const Layout& layout_;
  Device& device_;
  std::unique_ptr<Stream> stream_;
  MeshPlace place_;
  int data_places_ = 1;  // along the data axis, of a place()
  int stage_ = 0;
  std::unique_ptr<StepVisitGroups> visits_;
  std::unique_ptr<GatherLane> gathers_;
  std::unique_ptr<Communicator> together_;  // the ranks of Agree
  std::unique_ptr<Communicator> pipeline_;  // null: there is one stage
  absl::Status status_;
};

}  // namespace delink
