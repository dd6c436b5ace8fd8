// Which blocks keep nothing but their input for backward, and run their forward
// again there.
#pragma once

#include <vector>

#include "framework/step/plan/planner.h"

namespace delink {

// The planner's programs, of which those with a backward do so of `layers` (by
// layer as programs count them; of blocks alone, whatever is said of others),
// besides those of which the planner says so. Nothing but flags changes. Empty:
// the planner's own.
Planner WithRecompute(Planner planner, std::vector<bool> layers);

}  // namespace delink
