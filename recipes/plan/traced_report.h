// A step's time by a trace, in words and in JSON.
#pragma once

#include <string>

#include "nlohmann/json_fwd.hpp"
#include "recipes/plan/step_trace.h"

namespace delink {

// Lines, indented: the time, and where there are lanes beside compute what they
// do in a step and how much of it hides.
std::string TracedText(const TracedTime& traced);
nlohmann::ordered_json ToJson(const TracedTime& traced);

}  // namespace delink
