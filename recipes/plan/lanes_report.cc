#include "recipes/plan/lanes_report.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace delink {
namespace {

const char* KindOf(Lane lane) {
  if (IsOverBus(lane)) return "copies";
  if (lane == Lane::kUpdates) return "the device's updates";
  return lane == Lane::kHost ? "the host's updates" : "exchanges";
}

// "300 ms of 334 ms of copies, ...".
std::string HiddenText(const RankLanes& lanes) {
  std::vector<std::string> parts;
  for (const char* const kind :
       {"copies", "the device's updates", "the host's updates", "exchanges"}) {
    double busy = 0, hidden = 0;
    for (const LaneUse& use : lanes.uses) {
      if (use.lane == Lane::kCompute || KindOf(use.lane) != std::string(kind)) {
        continue;
      }
      busy += use.busy;
      hidden += use.hidden;
    }
    if (busy == 0) continue;
    parts.push_back(absl::StrCat(SecondsText(hidden), " of ", SecondsText(busy),
                                 " of ", kind));
  }
  return absl::StrJoin(parts, ", ");
}

}  // namespace

std::string SecondsText(double seconds) {
  return seconds < 1 ? absl::StrFormat("%.3g ms", 1e3 * seconds)
                     : absl::StrFormat("%.4g s", seconds);
}

std::string LanesText(const RankLanes& lanes, double seconds) {
  if (lanes.uses.size() < 2) return "";
  const auto columns = static_cast<double>(lanes.uses[0].picture.size());
  std::string text =
      absl::StrCat("  lanes of rank ", lanes.rank, " in a step, ",
                   SecondsText(seconds / columns), " a column:\n");
  for (const LaneUse& use : lanes.uses) {
    absl::StrAppendFormat(&text, "    %-13s %3.0f%%  %s\n", ToString(use.lane),
                          100 * use.busy / seconds, use.picture);
  }
  return absl::StrCat(text, "  hidden under compute: ", HiddenText(lanes),
                      "\n");
}

nlohmann::ordered_json LanesJson(const std::vector<RankLanes>& ranks) {
  nlohmann::ordered_json lanes = nlohmann::ordered_json::array();
  for (const RankLanes& of : ranks) {
    for (const LaneUse& use : of.uses) {
      lanes.push_back({{"rank", of.rank},
                       {"lane", ToString(use.lane)},
                       {"busy_seconds", use.busy},
                       {"hidden_seconds", use.hidden},
                       {"picture", use.picture}});
    }
  }
  return lanes;
}

}  // namespace delink
