// What `delink report` shows of a sweep: the runs that differ in nothing but
// their seed as one row, with means and spread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"

namespace delink::report {

// Whether a folder is that of a sweep.
bool HoldsSweep(const std::string& folder);

// The folders of its runs that have begun, in the order of the table.
absl::StatusOr<std::vector<std::string>> RunsOfSweep(const std::string& folder);

// Of sweep.json (tools/sweep/table.h): {name, settings, measures, groups,
// failures}. A group is {settings, runs, done, counts, mean, spread}: of the
// runs that are finished how many have each measure, its mean and the sample's
// standard deviation, null where there are too few. FailedPrecondition: the
// file is not what a sweep writes.
absl::StatusOr<nlohmann::ordered_json> SweepJson(const std::string& folder);

}  // namespace delink::report
