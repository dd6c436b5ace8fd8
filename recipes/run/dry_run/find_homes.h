// Places the planes that a stage leaves to `auto`, within its budgets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "offload/plan/find_place.h"
#include "offload/plan/foreseen_step.h"
#include "recipes/run/dry_run/imagined_stage.h"
#include "recipes/run/dry_run/known_rates.h"
#include "recipes/run/stage/stage_run.h"

namespace delink {

// For stage `index`. Compares the stage's account with its budgets for the rank
// and the machine that hold most. If it is not stage `first`, the planes of the
// stage before count too; env.homes must have these. Gives the same on every
// rank if the rates are the same. If nothing fits: InvalidArgument, at the
// budget's key, with the shortfall and what would fit. Allocates nothing.
absl::StatusOr<FoundPlace> FindHomes(const RunEnv& env, size_t first,
                                     size_t index, const KnownRates& rates);

// The recipe with another ZeRO stage for stage `index`, and without the keys of
// its layout that need a higher one.
Recipe WithZero(Recipe recipe, size_t index, int64_t zero);

// For stage `index`, which takes more of a rank's device than `device` bytes:
// the lowest ZeRO stage above its own with which it would fit, by FindHomes if
// it has budgets: "; zero = 3 (stage[1].parallel) would take 3.2 MiB". Empty:
// there is none.
std::string ZeroThatFits(const RunEnv& env, size_t first, size_t index,
                         int64_t device, const KnownRates& rates);

// RunEnv::homes, by stage, for all stages from `first` on that have budgets.
// Rank 0 decides, by the rates of its machine, and logs the result. Collective.
absl::StatusOr<std::vector<AutoPlace>> AgreeOnHomes(const RunEnv& env,
                                                    size_t first);

// Seconds by instruction of the imagined rank's step, without exchanges.
// `rates` are those of a whole machine: its ranks have equal parts of the
// host's memory bandwidth, and on the CPU of all rates.
std::vector<offload::WorkSeconds> StepSeconds(const ImaginedStage& stage,
                                              const KnownRates& rates);

struct ForeseenStage {
  PlaceCost cost;
  ForeseenStep step;
};
// The predicted step of an imagined stage, on rank 0, with the rates of a whole
// machine. `columns`: width of the lanes' pictures.
absl::StatusOr<ForeseenStage> ForeseeStage(ImaginedStage& first,
                                           const KnownRates& rates,
                                           int columns = 1);

}  // namespace delink
