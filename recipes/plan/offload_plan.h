// What `offload` makes of a stage: where its slabs are at home, what of each
// tier they take, and how long a step is foreseen to take, lane by lane.
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
#include "recipes/run/imagined_stage.h"
#include "recipes/run/known_rates.h"

namespace delink {

// Of a slab that a rank has.
struct SlabHomes {
  std::string slab;
  PlacementRow row;
  int64_t device = 0;  // bytes at home there, and in copies that stay there
  int64_t host = 0;    // bytes at home there
};

struct OffloadPlan {
  // By stage of the pipeline, of the rank that holds most.
  std::vector<std::vector<SlabHomes>> slabs;
  std::vector<int> stored;  // blocks whose activations go to the host
  std::vector<int> again;   // blocks that auto has made again in backward
  ForeseenStep step;
  int64_t machine_host = 0;  // bytes of the machine that has most
  std::string rates;         // whose they are
  OffloadRules rules;
  std::optional<FoundPlace> found;  // where there are budgets
};

// `found`: what FindHomes said, if there was anything to find.
absl::StatusOr<OffloadPlan> PlanOffload(ImaginedStage& first,
                                        const KnownRates& rates,
                                        std::optional<FoundPlace> found);

// Lines, indented.
std::string OffloadText(const OffloadPlan& plan);
nlohmann::ordered_json ToJson(const OffloadPlan& plan);

}  // namespace delink
