// The instruction times in a run's trace (`train --trace`), and the time of a
// step with these costs over links of given latency and bandwidth
// (framework/step/time/step_time.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/module/mesh.h"
#include "framework/step/time/lane_use.h"
#include "framework/step/time/step_time.h"
#include "recipes/run/dry_run/pipeline_plan.h"

namespace delink {

struct TracedTime {
  int64_t steps = 0;         // of this stage in the trace
  double traced = 0;         // seconds between the ends of consecutive ones
  double planned = 0;        // of a step over the links, until the next begins
  std::vector<double> ends;  // by rank, for a step that begins at 0
  std::vector<RankLanes> lanes;  // by pipeline stage
};

class StepTrace {
 public:
  // Reads a file of `train --trace` on the CPU. InvalidArgument: another file.
  static absl::StatusOr<StepTrace> Read(const std::string& path);

  // For a stage with the programs of `plan`, on the ranks of `mesh`. An
  // instruction takes its median over the traced steps. In each step a joint
  // instruction takes the shortest time of its ranks, because the last rank to
  // arrive does not wait. Copies between host and device have the traced bytes.
  // nullopt if no traced step has these programs. `drains`: as in TimeStep.
  absl::StatusOr<std::optional<TracedTime>> Time(const PipelinePlan& plan,
                                                 const Mesh& mesh,
                                                 const StepLinks& links,
                                                 bool drains) const;

 private:
  struct Traced {
    std::string name;
    int64_t bytes = 0;
    double begin = 0, end = 0;  // seconds
    // Within it, in the order in which they are posted.
    struct Exchange {
      double posted = 0, begin = 0;
      double waited = 0;  // from `begin` on
    };
    std::vector<Exchange> exchanges;
  };
  // By index.
  using Steps = std::map<int64_t, std::map<int64_t, Traced>>;
  class Medians;

  // The traced steps that have these programs on all ranks.
  std::vector<int64_t> StepsOf(const std::vector<RankProgram>& ranks) const;
  // Seconds between the ends of consecutive steps; 0 for a single step.
  double SecondsOf(const std::vector<RankProgram>& ranks,
                   const std::vector<int64_t>& steps) const;

  std::map<int, Steps> ranks_;
};

}  // namespace delink
