// What the lanes of ranks do in a step, in words and in JSON.
#pragma once

#include <string>
#include <vector>

#include "framework/step/lane_use.h"
#include "nlohmann/json_fwd.hpp"

namespace delink {

inline constexpr int kTimelineColumns = 64;  // of a picture

// "1.5 s", "0.02 ms".
std::string SecondsText(double seconds);

// Lines, indented: of a step of so many seconds what each lane does, and how
// much of it hides under what is computed; none where there is no lane beside
// compute.
std::string LanesText(const RankLanes& lanes, double seconds);
// A list, an object a lane.
nlohmann::ordered_json LanesJson(const std::vector<RankLanes>& ranks);

}  // namespace delink
