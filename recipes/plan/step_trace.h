// What the instructions of a run took, by a trace of it (`train --trace`), and
// how long a step of such costs takes over links of a set latency and bandwidth
// (framework/step/step_time.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/module/mesh.h"
#include "framework/step/lane_use.h"
#include "framework/step/step_time.h"
#include "recipes/plan/pipeline_plan.h"

namespace delink {

struct TracedTime {
  int64_t steps = 0;   // of the trace, that are this stage's
  double traced = 0;   // seconds from the end of one of them to the next's
  double planned = 0;  // a step over the links, to where the next begins
  std::vector<double> ends;      // by rank: of a step that begins at 0
  std::vector<RankLanes> lanes;  // by stage of the pipeline
};

class StepTrace {
 public:
  // A file of `train --trace` on the CPU. InvalidArgument where it is none.
  static absl::StatusOr<StepTrace> Read(const std::string& path);

  // Of a stage whose programs `plan` has, on the ranks of `mesh`. Each
  // instruction takes the median of the traced steps: what ranks do together,
  // the least of them, because the last that comes to it does not wait. Copies
  // between homes are of the bytes that the trace says. Nothing where no step
  // of the trace has these programs. `drains` as TimeStep.
  absl::StatusOr<std::optional<TracedTime>> Time(const PipelinePlan& plan,
                                                 const Mesh& mesh,
                                                 const StepLinks& links,
                                                 bool drains) const;

 private:
  struct Traced {
    std::string name;
    int64_t bytes = 0;
    double begin = 0, end = 0;      // seconds
    std::vector<double> exchanges;  // in the middle of it: what each took
  };
  // By index.
  using Steps = std::map<int64_t, std::map<int64_t, Traced>>;
  class Medians;

  // Those that are steps of the programs on all ranks.
  std::vector<int64_t> StepsOf(const std::vector<RankProgram>& ranks) const;
  // Of the steps, from the end of one to the next's; 0 of a single one.
  double SecondsOf(const std::vector<RankProgram>& ranks,
                   const std::vector<int64_t>& steps) const;

  std::map<int, Steps> ranks_;
};

}  // namespace delink
