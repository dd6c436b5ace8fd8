// Communicators of sets of ranks.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"

namespace delink {

// For each group the communicator of its ranks, in that order; null if this
// rank is not one of them. Collective over `comm`: all ranks give the same
// groups, each of ascending ranks of `comm`. Groups without a common rank are
// split off together, so that there are few collectives.
absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> SplitGroups(
    Communicator& comm, const std::vector<std::vector<int>>& groups);

}  // namespace delink
