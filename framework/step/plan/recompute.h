// Which blocks keep only their input for backward, and repeat their forward
// there.
#pragma once

#include <vector>

#include "framework/step/plan/planner.h"

namespace delink {

// The planner's programs, but those with a backward also recompute `layers`, in
// addition to the planner's choice. `layers` is by layer as programs count
// them; only its blocks matter. Only flags change. Empty: the planner's own.
Planner WithRecompute(Planner planner, std::vector<bool> layers);

}  // namespace delink
