// The programs of several ranks, executed together without doing anything: do
// they meet, do they end, and when. Part of ValidatePrograms.
//
// An instruction meets those of other ranks that it is done together with: a
// kReduce, or a kFetch of a slab that gathers, those of the ranks that have the
// slab, kNorm and kSum those of all ranks, a kSend its one kRecv. Lanes keep
// their order, each instruction waits for fixed others, and meetings have fixed
// members: nobody ever has a choice, so if one execution ends, all do.
//
// A column is one rank of each stage, those of one data place. What is sent
// stays in a column, collectives are of whole stages. So where the columns are
// equal an execution of one is one of all, in which they go in step: one column
// stands for any number.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/step/instruction.h"

namespace delink {

struct RankProgram {
  int rank = 0;  // for messages
  const Program* program = nullptr;
};

// By stage.
using Column = std::vector<RankProgram>;

// Each program must be one that ValidateProgram passes, all are of one shape
// and kind; columns that are equal need one entry only. Of two ranks the
// collectives of a lane that are of both must have one order, and what one
// sends to the other that in which the other receives it. InvalidArgument names
// a rank and the first instruction that is otherwise.
absl::Status CheckMeetings(const std::vector<Column>& columns);

// When an instruction runs: in the unit of the costs, from the start of the
// first step.
struct Interval {
  double begin = 0, end = 0;
};
// What an instruction takes, by its index.
using Costs = std::function<double(const Program&, int32_t index)>;

// Of columns that CheckMeetings passes two steps are executed: each lane in its
// order, each instruction once its dependencies are complete, with all that it
// meets. InvalidArgument names a rank and an instruction that would wait for
// ever. Otherwise when the instructions of the first step run: by rank, the
// stages of the first column first, and instruction. Without costs all take
// nothing.
absl::StatusOr<std::vector<std::vector<Interval>>> ExecuteTogether(
    const std::vector<Column>& columns, const Costs& costs = nullptr);

}  // namespace delink
