// The data of a report's page: one JSON object, which only
// tools/report/page/*.js read.
//
// Long columns are thinned to what a screen can show, so that the page of a run
// of a million steps has some hundred kilobytes. Means over the steps that are
// left out are included.
#pragma once

#include <string>
#include <vector>

#include "nlohmann/json_fwd.hpp"
#include "tools/report/run_record.h"

namespace delink::report {

// Numbers have seven digits; unknown values are null.
nlohmann::ordered_json ToJson(const RunRecord& run);

// Keys whose values differ between runs, in the order of the recipes, each with
// the value of every run; null if a run does not have the key.
nlohmann::ordered_json RecipeDifferences(const std::vector<RunRecord>& runs);

}  // namespace delink::report
