// The programs of several ranks, executed together without doing anything: do
// they end, and when. Part of ValidatePrograms.
//
// Lanes keep their order, each instruction waits for fixed others, and meetings
// have fixed members: nobody ever has a choice, so if one execution ends, all
// do.
//
// What is sent stays in a column, a rank of each stage, collectives are of
// whole stages, or of those of their ranks that differ in tensor and context
// place. So where the columns are equal an execution of one is one of all, in
// which they go in step: one column stands for any number.
//
// A visit that exchanges something is one meeting of all that take part in its
// exchanges, which CheckVisitMeetings has found to be alike: nobody is through
// with it before all have begun it, and nobody does anything else in that lane
// meanwhile.
//
// Nor do costs give anybody a choice, but for transfers and copies of several
// lanes that go the same way: those are done when nothing else can be, the
// first that is ready first, and what they make possible is not ready before
// they are.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/step/instruction.h"
#include "framework/step/meetings.h"

namespace delink {

// When an instruction runs: in the unit of the costs, from the start of the
// first step.
struct Interval {
  double begin = 0, end = 0;
};
// What an instruction takes.
struct Cost {
  double time = 0;
  // Of a kSend or kRecv: for so long of that, from its begin on, nothing else
  // goes the way from the one rank to the other; of a copy over the bus its
  // way of the rank's.
  double busy = 0;
};
// By rank and the instruction's index.
using Costs = std::function<Cost(const RankProgram& rank, int32_t index)>;

// By rank, the stages of the first column first, and instruction.
using Intervals = std::vector<std::vector<Interval>>;
struct JointTimes {
  Intervals first, second;  // step
};

// Of columns that CheckMeetings passes, of all places of a stage or of distinct
// ones where visits exchange nothing, two steps are executed: each lane in its
// order, each instruction once its dependencies are complete, with all that it
// meets. InvalidArgument names a rank and an instruction that would wait for
// ever. Otherwise when the instructions run. What is done together begins when
// all are ready and takes what it takes the slowest of them; transfers of a way
// begin in the order in which both ends are ready. Without costs all take
// nothing.
absl::StatusOr<JointTimes> ExecuteTogether(const std::vector<Column>& columns,
                                           const Costs& costs = nullptr);

}  // namespace delink
