// A step's time from a trace, in words and in JSON.
#pragma once

#include <string>

#include "nlohmann/json_fwd.hpp"
#include "recipes/plan/step_trace.h"

namespace delink {

// Indented lines: the time and, if there are lanes besides compute, what they
// do in a step and how much of it overlaps compute.
std::string TracedText(const TracedTime& traced);
nlohmann::ordered_json ToJson(const TracedTime& traced);

}  // namespace delink
