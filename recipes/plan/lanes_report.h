// What the lanes of ranks do in a step, in words and in JSON.
#pragma once

#include <string>
#include <vector>

#include "framework/step/time/lane_use.h"
#include "nlohmann/json_fwd.hpp"

namespace delink {

inline constexpr int kTimelineColumns = 64;  // of a picture

// "1.5 s", "0.02 ms".
std::string SecondsText(double seconds);

// Indented lines: what each lane does in a step of `seconds`, and how much of
// it overlaps compute. Empty if compute is the only lane.
std::string LanesText(const RankLanes& lanes, double seconds);
// A list with an object per lane.
nlohmann::ordered_json LanesJson(const std::vector<RankLanes>& ranks);

}  // namespace delink
