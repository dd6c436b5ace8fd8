// What takes the time of a step, from the joint execution of all ranks.
//
// The rank whose compute lane ends last stands for all. While that lane works,
// its instructions count, each by its parts. While it waits, what released it
// counts: the path goes back from the instruction that begins over its cause
// (joint_execution.h), that cause's, and so on, to the begin of the wait. Work
// of this rank's other lanes counts by its parts. From where the path leaves
// the rank on, the rest of the wait is for the pipeline, if it leaves for
// another stage, else for slower ranks; so is the part of a joint instruction
// that takes longer than this rank's own.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "framework/step/proof/meetings.h"
#include "framework/step/time/step_time.h"

namespace delink {

// In words, seconds.
using TimeParts = std::vector<std::pair<std::string, double>>;
// Of an instruction on a rank; they add up to what it takes by itself.
using PartsOfTime =
    std::function<TimeParts(const RankProgram& rank, int32_t index)>;

inline constexpr char kForPipeline[] = "waiting for the pipeline";
inline constexpr char kForSlowerRanks[] = "waiting for slower ranks";
inline constexpr char kUnused[] = "waiting for nothing";

struct CriticalPath {
  int rank = 0;     // that ends last
  TimeParts parts;  // the longest first; they add up to the step
};

// `columns` and `time`: of TimeStep, with costs.
CriticalPath FindCriticalPath(const std::vector<Column>& columns,
                              const StepTime& time, const PartsOfTime& parts);

}  // namespace delink
