// The data of a report's page: one JSON object, which tools/report/page/*.js
// read and nothing else does.
//
// Long columns are thinned to what a screen shows, so that the page of a run of
// a million steps is some hundred kilobytes; means over the steps left out go
// with them.
#pragma once

#include <string>
#include <vector>

#include "nlohmann/json_fwd.hpp"
#include "tools/report/run_record.h"

namespace delink::report {

// Numbers have seven digits; what is not known is null.
nlohmann::ordered_json ToJson(const RunRecord& run);

// Keys that not all runs have alike, in the order of the recipes, each with the
// value of every run; null where a run does not have the key.
nlohmann::ordered_json RecipeDifferences(const std::vector<RunRecord>& runs);

}  // namespace delink::report
