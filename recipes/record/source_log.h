// Reports the sources of a run in its log and metrics. For a single corpus it
// only reports that the corpus repeats or has ended.
#pragma once

#include <string>
#include <vector>

#include "nlohmann/json_fwd.hpp"
#include "recipes/record/run_event.h"

namespace delink {

class SourceLog {
 public:
  // Logs the sources at a run's begin, and how they differ from the checkpoint
  // that it resumes from, if any, which has `counts`.
  void Begin(const std::vector<SourceState>& sources,
             const std::vector<SourceCount>& counts);
  // After a step: logs once when a source begins to repeat or has ended, or
  // when the blend changes.
  void OnStep(const std::vector<SourceState>& sources);

 private:
  std::vector<SourceState> sources_;  // at the last call
};

// How much of each of several sources has been consumed, in words.
std::string ConsumedText(const std::vector<SourceState>& sources);
// For a row of metrics: {"web": {"samples": .., "tokens": .., "epochs": ..}}.
nlohmann::ordered_json ConsumedJson(const std::vector<SourceState>& sources);
// For the row of a start: a list with all that is known of each source.
nlohmann::ordered_json SourcesJson(const std::vector<SourceState>& sources);

}  // namespace delink
