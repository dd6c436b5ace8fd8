// A checkpoint's weights on the ranks that use it: all weights on each rank or,
// for a model too large for one process, a shard on each.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"
#include "framework/device/backend.h"
#include "framework/module/param_store.h"
#include "parallel/inference/forward_ranks.h"
#include "recipes/saved/saved_model.h"

namespace delink {

// The device for a checkpoint of that recipe; null: the CPU.
using MakeDevice =
    std::function<absl::StatusOr<std::unique_ptr<Device>>(const Recipe&)>;

// This rank's device and weights, and the ranks that share them.
struct Together {
  std::unique_ptr<Device> device;
  std::unique_ptr<ParamStore> store;
  std::unique_ptr<ForwardRanks> ranks;  // null: all weights are here
  // Ranks of one place work on the same sequences.
  int64_t place = 0, places = 1;

  // Ranks that gather weights make the same number of passes: for work m =
  // place, place + places, ... up to this, of which `count` and more is none.
  int64_t EndOf(int64_t count) const {
    return gathers() ? (count + places - 1) / places * places : count;
  }
  // Whether all of these ranks gather sharded weights together.
  bool gathers() const {
    return ranks != nullptr && ranks->gathers() != nullptr;
  }
  // Whether this rank's results count.
  bool counts() const { return ranks == nullptr || ranks->counts(); }
  // OK if it is OK on all ranks of this place, or that gather weights together.
  absl::Status Agree(const absl::Status& status) const {
    return ranks == nullptr ? status : ranks->Agree(status);
  }
  // The first error of their exchanges.
  absl::Status status() const {
    return ranks == nullptr ? absl::OkStatus() : ranks->status();
  }
};

// Loads with the layout that SavedModel::LayoutFor gives the ranks of `comm`.
// Collective.
absl::StatusOr<Together> LoadTogether(const SavedModel& saved,
                                      const MakeDevice& device,
                                      Communicator& comm);

// The sums over ranks, or the first rank's error. Collective.
absl::StatusOr<std::vector<double>> SumOverRanks(
    Communicator& comm, absl::StatusOr<std::vector<double>> mine);

}  // namespace delink
