// What a step of a pseudo stage costs beside one of the last, real stage: for
// each earlier stage of the recipe; for a recipe of one stage that shares
// nothing, if it shared all; and if the first visited as few blocks as its
// pipeline allows.
#pragma once

#include <string>

#include "nlohmann/json_fwd.hpp"
#include "recipes/models/model_list.h"
#include "recipes/plan/plan.h"

namespace delink {

// Sets RunPlan::pseudo of a plan of these options, which is for a machine.
// Leaves out what the recipe does not allow.
void FindPseudo(const PlanOptions& options, const ModelList& models,
                RunPlan& plan);

// Lines; empty without a pseudo stage.
std::string PseudoText(const RunPlan& plan);
nlohmann::ordered_json PseudoJson(const RunPlan& plan);

}  // namespace delink
