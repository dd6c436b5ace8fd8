// What is told of the sources of a run, in its log and its metrics. Of a run
// with one corpus that is little: that it is read again, or has ended.
#pragma once

#include <string>
#include <vector>

#include "nlohmann/json_fwd.hpp"
#include "recipes/record/run_event.h"

namespace delink {

class SourceLog {
 public:
  // Says what there is where a run begins, and what is otherwise than in the
  // checkpoint that it goes on from, if any, which has `counts`.
  void Begin(const std::vector<SourceState>& sources,
             const std::vector<SourceCount>& counts);
  // After a step: says once when a source begins to repeat, has ended, or the
  // blend has changed.
  void OnStep(const std::vector<SourceState>& sources);

 private:
  std::vector<SourceState> sources_;  // when they were last told
};

// How much of each source has been consumed, in words; of several.
std::string ConsumedText(const std::vector<SourceState>& sources);
// For a row of metrics: {"web": {"samples": .., "tokens": .., "epochs": ..}}.
nlohmann::ordered_json ConsumedJson(const std::vector<SourceState>& sources);
// For the row of a start: a list of all that is known of each source.
nlohmann::ordered_json SourcesJson(const std::vector<SourceState>& sources);

}  // namespace delink
