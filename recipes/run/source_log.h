// What is told of the sources of a run, in its log and its metrics. Of a run
// with one corpus that is little: that it is read again, or has ended.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "data/loader/blend.h"
#include "nlohmann/json_fwd.hpp"
#include "recipes/run/sources.h"

namespace delink {

// For rank 0.
class SourceLog {
 public:
  // `blend`: where the run begins; `before`: the counts of the checkpoint that
  // it goes on from, if any.
  SourceLog(const Sources& sources, const Blend& blend,
            std::vector<SourceCount> before);

  // Says what there is, and what is otherwise than in the checkpoint.
  void Begin() const;
  // After a step: says once when a source begins to repeat, has ended, or the
  // blend has changed.
  void OnStep(const Blend& blend);
  // How much of each source has been consumed, in words; of several.
  std::string Consumed() const;

 private:
  std::string Name(size_t i) const;
  std::string Shares() const;  // "web 66.7%, code 33.3%"

  const Sources* sources_;
  Blend blend_;
  std::vector<SourceCount> before_;
};

// For a row of metrics: {"web": {"samples": .., "tokens": .., "epochs": ..}}.
nlohmann::ordered_json ConsumedJson(const Sources& sources, const Blend& blend);
// For the row of a start: a list of all that is known of each source.
nlohmann::ordered_json SourcesJson(const Sources& sources, const Blend& blend);

}  // namespace delink
