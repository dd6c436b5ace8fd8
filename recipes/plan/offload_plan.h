// The effect of `offload` on a stage: where its slabs are placed, what they
// take of each tier, and the predicted time of a step, lane by lane.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"
#include "offload/plan/find_place.h"
#include "offload/plan/foreseen_step.h"
#include "offload/plan/offload_rules.h"
#include "recipes/run/dry_run/imagined_stage.h"
#include "recipes/run/dry_run/known_rates.h"

namespace delink {

// The placement of a slab on a rank.
struct SlabHomes {
  std::string slab;
  PlacementRow row;
  int64_t device = 0;  // resident bytes, with copies that stay there
  int64_t host = 0;    // resident bytes
};

struct OffloadPlan {
  // By pipeline stage, for the rank that holds most.
  std::vector<std::vector<SlabHomes>> slabs;
  std::vector<int> stored;  // blocks whose activations go to the host
  std::vector<int> again;   // blocks that auto recomputes in backward
  ForeseenStep step;
  int64_t machine_host = 0;  // of the machine that has most
  // Of a node of the plan's machine, if that is of a file.
  std::optional<int64_t> host_memory;
  std::string rates;  // their source
  OffloadRules rules;
  std::optional<FoundPlace> found;  // if there are budgets
};

// `found`: the result of FindHomes, if it was called.
absl::StatusOr<OffloadPlan> PlanOffload(ImaginedStage& first,
                                        const KnownRates& rates,
                                        std::optional<FoundPlace> found);

// Indented lines.
std::string OffloadText(const OffloadPlan& plan);
nlohmann::ordered_json ToJson(const OffloadPlan& plan);

}  // namespace delink
