// What the lanes of a rank do in a step of many, and what of it hides under
// what the rank computes: of a joint execution with costs.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "framework/step/instruction.h"
#include "framework/step/step_time.h"

namespace delink {

struct LaneUse {
  Lane lane = Lane::kCompute;
  double busy = 0;    // seconds of a step
  double hidden = 0;  // of these, while the compute lane is busy as well
  // The step from its begin to its end, a letter for what takes most of a
  // column: '.' nothing; in and out w, g, s for planes of weights, gradients
  // and state, a for activations; else the first letter of the instruction.
  std::string picture;
};

// Of a rank of a stage of the pipeline.
struct RankLanes {
  int rank = 0;
  std::vector<LaneUse> uses;
};

// Of the rank number `rank` of those executed, whose program it is: the lanes
// that take time in a step, in the order of Lane. Instructions that take none
// are not seen.
std::vector<LaneUse> UseOfLanes(const Program& program, const StepTime& time,
                                size_t rank, int columns);

}  // namespace delink
