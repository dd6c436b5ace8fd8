// Simulates the programs of several ranks together: whether and when they end.
// Part of ValidatePrograms.
//
// Lanes keep their order, each instruction waits for fixed others, and meetings
// have fixed members. No rank ever has a choice, so if one execution ends, all
// do.
//
// Transfers stay in a column, which has one rank of each stage. Collectives are
// of whole stages, or of those of their ranks that differ in tensor and context
// place. So if columns are equal, executing one executes all of them in step:
// one column stands for any number.
//
// A visit with exchanges is one meeting of all ranks that take part in them;
// CheckVisitMeetings has found their exchanges to be alike. No rank finishes it
// before all have begun it, or does anything else in that lane meanwhile.
//
// Costs give no rank a choice either, except for instructions of several lanes
// that share a way: transfers, copies, and whatever uses a rank's lines. Those
// are done when nothing else can be, the first that is ready first, of several
// the first lane's; what they make possible is not ready before them.
//
// Takes time and memory in proportion to the instructions of all ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/step/program/instruction.h"
#include "framework/step/proof/meetings.h"

namespace delink {

// When an instruction runs: in the unit of the costs, from the start of the
// first step.
struct Interval {
  double begin = 0, end = 0;
};
// What an instruction takes.
struct Cost {
  double time = 0;
  // The part of it, from its begin on, in which nothing else uses the same way:
  // for a kSend or kRecv all that its sender sends so, for a copy over the
  // rank's bus in its direction. A copy that is busy for no time does not wait
  // for the bus.
  double busy = 0;
  // The parts, from its begin on, in which nothing else uses this rank's line
  // to ranks of its node, and that to other nodes. An instruction begins when
  // the lines of all that it meets are free.
  double inside = 0, between = 0;
  // The part, from its begin on, in which nothing else runs on this rank.
  double cores = 0;
  friend bool operator==(const Cost&, const Cost&) = default;
};
// By rank and the instruction's index.
using Costs = std::function<Cost(const RankProgram& rank, int32_t index)>;

// By rank, the stages of the first column first, and instruction.
using Intervals = std::vector<std::vector<Interval>>;
// What an instruction waited for last: an instruction of a rank, by column and
// stage, at its position in both steps, counted on. -1: nothing.
struct Cause {
  int rank = -1;
  int32_t position = -1;
};
struct JointTimes {
  Intervals first, second;  // step
  // By rank and position; none without costs. The instruction began when its
  // cause had ended or, if both share a way, was done with that.
  std::vector<std::vector<Cause>> causes;
};

// Executes two steps of columns that CheckMeetings passes: all places of a
// stage or, if visits exchange nothing, distinct ones. Each lane runs in its
// order, each instruction once its dependencies are complete, with all that it
// meets. Returns when the instructions run, or an InvalidArgument that names a
// rank and an instruction that would wait for ever. Instructions that meet
// begin when all are ready and take the time of the slowest; transfers of a way
// begin in the order in which both ends are ready. Without costs none takes
// time.
absl::StatusOr<JointTimes> ExecuteTogether(const std::vector<Column>& columns,
                                           const Costs& costs = nullptr);

}  // namespace delink
