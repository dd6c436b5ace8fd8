// Where planes are at home of what a stage leaves to `auto`, within its
// budgets.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "offload/plan/find_place.h"
#include "offload/plan/foreseen_step.h"
#include "recipes/run/imagined_stage.h"
#include "recipes/run/known_rates.h"
#include "recipes/run/stage_run.h"

namespace delink {

// Of stage `index`, whose account is held against its budgets as all ranks
// would have it: on the rank and the machine that have most, with the planes of
// the stage before where it is not `first`, of which env.homes is given. The
// same on every rank where the rates are. InvalidArgument, at the budget's key,
// with what is short and what would do, where nothing fits. Allocates nothing.
absl::StatusOr<FoundPlace> FindHomes(const RunEnv& env, size_t first,
                                     size_t index, const KnownRates& rates);

// By stage, RunEnv::homes: of all from `first` on that have budgets. Rank 0
// decides, by the rates of its machine, and says so. Collective.
absl::StatusOr<std::vector<AutoPlace>> AgreeOnHomes(const RunEnv& env,
                                                    size_t first);

struct ForeseenStage {
  PlaceCost cost;
  ForeseenStep step;
};
// Of a stage as it is imagined, on rank 0, at these rates of the machine, of
// which the ranks on it have equal parts: of the host's memory, and on the CPU
// of all. Pictures of lanes have so many columns.
absl::StatusOr<ForeseenStage> ForeseeStage(ImaginedStage& first,
                                           const KnownRates& rates,
                                           int columns = 1);

}  // namespace delink
