// What the lanes of a rank do in a step of many, and how much of it overlaps
// with compute, from a joint execution with costs.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "framework/step/program/instruction.h"
#include "framework/step/time/step_time.h"

namespace delink {

struct LaneUse {
  Lane lane = Lane::kCompute;
  double busy = 0;    // seconds of a step
  double hidden = 0;  // of these, while the compute lane is busy as well
  // The step from its begin to its end. A column's letter is what takes most of
  // its time: '.' nothing. On the bus: copies of w weights, u weights for
  // updates, g gradients, s state, a activations. On other lanes: the first
  // letter of the instruction.
  std::string picture;
};

// Of a rank of a stage of the pipeline.
struct RankLanes {
  int rank = 0;
  std::vector<LaneUse> uses;
};

// The lanes that take time in a step, in the order of Lane. `rank` is the
// number of the rank among those executed, `program` its program. Instructions
// that take no time are left out.
std::vector<LaneUse> UseOfLanes(const Program& program, const StepTime& time,
                                size_t rank, int columns);

}  // namespace delink
