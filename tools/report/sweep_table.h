// The table of a sweep in `delink report`: runs that differ only in their seed
// form one row, with means and spread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"

namespace delink::report {

// Whether a folder is that of a sweep.
bool HoldsSweep(const std::string& folder);

// The folders of its runs that have started, in the order of the table.
absl::StatusOr<std::vector<std::string>> RunsOfSweep(const std::string& folder);

// From sweep.json (tools/sweep/table.h): {name, settings, measures, groups,
// failures}. A group is {settings, runs, done, counts, mean, spread}. The last
// three are, for each measure, the number of finished runs that have it, its
// mean and its sample standard deviation, null if there are too few runs.
// FailedPrecondition: a sweep has not written this file.
absl::StatusOr<nlohmann::ordered_json> SweepJson(const std::string& folder);

}  // namespace delink::report
