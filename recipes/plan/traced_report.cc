#include "recipes/plan/traced_report.h"

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "recipes/plan/lanes_report.h"

namespace delink {

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
  for (const RankLanes& lanes : traced.lanes) {
    text += LanesText(lanes, traced.planned);
  }
  return text;
}

nlohmann::ordered_json ToJson(const TracedTime& traced) {
  return {{"steps", traced.steps},
          {"step_seconds", traced.traced},
          {"planned_step_seconds", traced.planned},
          {"planned_ends", traced.ends},
          {"lanes", LanesJson(traced.lanes)}};
}

}  // namespace delink
