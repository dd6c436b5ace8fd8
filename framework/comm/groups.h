// Communicators of sets of ranks.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"

namespace delink {

// By group: the communicator of its ranks, in that order, where this rank is
// one of them; else null. Collective over `comm`: all ranks give the same
// groups, each of ranks of `comm`, ascending. Groups that have no rank in
// common are split off together, so that there are few collectives.
absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> SplitGroups(
    Communicator& comm, const std::vector<std::vector<int>>& groups);

}  // namespace delink
