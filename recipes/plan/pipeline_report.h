// A pipeline's plan in words and in JSON.
#pragma once

#include <string>
#include <vector>

#include "nlohmann/json_fwd.hpp"
#include "recipes/run/dry_run/pipeline_plan.h"

namespace delink {

// "0,1,5..9" of ascending numbers.
std::string NumbersText(const std::vector<int>& numbers);

// Indented lines: a table of its stages, what they share, and when they are
// idle.
std::string PipelineText(const PipelinePlan& plan);
// What the plan's ranks exchange in a step, a line for each kind.
std::string ExchangesText(const PipelinePlan& plan);
nlohmann::ordered_json ExchangesJson(const PipelinePlan& plan);
nlohmann::ordered_json ToJson(const PipelinePlan& plan);

}  // namespace delink
