// A checkpoint's weights on the ranks that use it: all of them on each, or, of
// a model that is too large for one process, some on each.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"
#include "framework/module/param_store.h"
#include "recipes/saved/forward_ranks.h"
#include "recipes/saved/saved_model.h"

namespace delink {

// What this rank has of the weights, and with whom.
struct Together {
  std::unique_ptr<ParamStore> store;
  std::unique_ptr<ForwardRanks> ranks;  // null: all of them is here
  // Along the data axis.
  int64_t place = 0, places = 1;

  // Whether this rank is the one of those that have them whose results count.
  bool counts() const { return ranks == nullptr || ranks->counts(); }
  // OK where all of these bring OK.
  absl::Status Agree(const absl::Status& status) const {
    return ranks == nullptr ? status : ranks->Agree(status);
  }
  // The first error of what they exchanged.
  absl::Status status() const {
    return ranks == nullptr ? absl::OkStatus() : ranks->status();
  }
};

// As SavedModel::MeshFor says of the ranks of `comm`. Collective.
absl::StatusOr<Together> LoadTogether(const SavedModel& saved, Device& device,
                                      Communicator& comm);

}  // namespace delink
