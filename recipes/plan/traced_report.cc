#include "recipes/plan/traced_report.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace delink {
namespace {

using Json = nlohmann::ordered_json;

const char* KindOf(Lane lane) {
  if (lane == Lane::kIn || lane == Lane::kOut) return "copies";
  return lane == Lane::kHost ? "the host's updates" : "exchanges";
}

// "0.3 s of 0.334 s of copies, ...".
std::string HiddenText(const TracedLanes& lanes) {
  std::vector<std::string> parts;
  for (const char* const kind : {"copies", "the host's updates", "exchanges"}) {
    double busy = 0, hidden = 0;
    for (const LaneUse& use : lanes.uses) {
      if (use.lane == Lane::kCompute || KindOf(use.lane) != std::string(kind)) {
        continue;
      }
      busy += use.busy;
      hidden += use.hidden;
    }
    if (busy == 0) continue;
    parts.push_back(
        absl::StrFormat("%.3g s of %.3g s of %s", hidden, busy, kind));
  }
  return absl::StrJoin(parts, ", ");
}

std::string LanesText(const TracedLanes& lanes, double seconds) {
  if (lanes.uses.size() < 2) return "";
  std::string text = absl::StrFormat(
      "  lanes of rank %d in a step, %.3g ms a column:\n", lanes.rank,
      1e3 * seconds / static_cast<double>(lanes.uses[0].picture.size()));
  for (const LaneUse& use : lanes.uses) {
    absl::StrAppendFormat(&text, "    %-13s %3.0f%%  %s\n", ToString(use.lane),
                          100 * use.busy / seconds, use.picture);
  }
  return absl::StrCat(text, "  hidden under compute: ", HiddenText(lanes),
                      "\n");
}

}  // namespace

std::string TracedText(const TracedTime& traced) {
  std::string text = absl::StrFormat(
      "  by %d traced steps, of %.4g s each: a step takes %.4g s, its ranks ",
      traced.steps, traced.traced, traced.planned);
  absl::StrAppend(&text,
                  absl::StrJoin(traced.ends, ", ",
                                [](std::string* out, double end) {
                                  absl::StrAppendFormat(out, "%.4g s", end);
                                }),
                  "\n");
  for (const TracedLanes& lanes : traced.lanes) {
    text += LanesText(lanes, traced.planned);
  }
  return text;
}

Json ToJson(const TracedTime& traced) {
  Json lanes = Json::array();
  for (const TracedLanes& of : traced.lanes) {
    for (const LaneUse& use : of.uses) {
      lanes.push_back({{"rank", of.rank},
                       {"lane", ToString(use.lane)},
                       {"busy_seconds", use.busy},
                       {"hidden_seconds", use.hidden},
                       {"picture", use.picture}});
    }
  }
  return {{"steps", traced.steps},
          {"step_seconds", traced.traced},
          {"planned_step_seconds", traced.planned},
          {"planned_ends", traced.ends},
          {"lanes", std::move(lanes)}};
}

}  // namespace delink
