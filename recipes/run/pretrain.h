// `delink train`: one run, from a recipe to its last checkpoint.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"

namespace delink {

class RunSetup;

// Trains until the recipe's end, until `until_step`, or until a signal asks all
// ranks to stop; then they finish the step and save. Returns the signal, or 0.
// An error during training may occur on one rank only; the caller must then end
// the other ranks.
absl::StatusOr<int> Train(RunSetup& run, std::optional<int64_t> until_step);

}  // namespace delink
