// What `delink plan` says of a machine, and of a step on it.
#pragma once

#include <cstdint>
#include <string>

#include "nlohmann/json_fwd.hpp"
#include "recipes/run/dry_run/machine_step.h"
#include "recipes/run/dry_run/planned_machine.h"

namespace delink {

// What the machine has, and whether a rank that takes `bytes` of its device
// fits.
std::string MachineText(const PlannedMachine& planned, int64_t bytes);
nlohmann::ordered_json ToJson(const PlannedMachine& planned, int64_t bytes);

// The critical path: "63.2% products, 20.1% waiting for the pipeline".
std::string PathText(const MachineStep& step);
std::string StepText(const PlannedMachine& machine, const MachineStep& step);
// Adds to the JSON of a stage.
void AddStep(const PlannedMachine& machine, const MachineStep& step,
             nlohmann::ordered_json& json);

}  // namespace delink
