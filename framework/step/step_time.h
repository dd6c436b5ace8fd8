// How long a step takes where instructions take what was measured, and what
// ranks exchange, and what comes and goes between homes, goes over links of a
// set latency and bandwidth: the joint execution that proves the programs, with
// these costs.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/comm/link.h"
#include "framework/step/joint_execution.h"
#include "framework/step/meetings.h"

namespace delink {

// What an instruction took on a rank: seconds.
struct MeasuredTime {
  double own = 0;  // by itself, whatever others do
  // From when all were at an exchange until it was there; of a copy, all.
  double exchanged = 0;
};

// What an instruction sends or copies: so many operations, one behind the
// other, of so many bytes of this rank in all (link.h).
struct Sent {
  int64_t operations = 0;
  int64_t bytes = 0;
};

// By the kind of what goes over them. Of no latency and bandwidth they take
// nothing, and what was measured is left.
struct StepLinks {
  Link network;     // collectives of slabs, norms and sums
  Link neighbours;  // transfers between stages, each way
  Link visits;      // in the middle of visits and updates
  Link bus;         // between homes of planes and copies, each way

  const Link& Of(const Instruction& at) const;
};

// Of what ranks exchange in the middle of a visit or an update.
Sent SentWithin(const Program& program, const Instruction& at);

// What an exchange took is hidden by its link where that takes longer.
Cost CostOver(const Link& link, const MeasuredTime& measured, const Sent& sent);

// An instruction's, by rank and index.
using MeasuredCosts =
    std::function<MeasuredTime(const RankProgram& rank, int32_t index)>;
using SentBytes = std::function<Sent(const RankProgram& rank, int32_t index)>;
Costs CostsOver(const StepLinks& links, MeasuredCosts measured, SentBytes sent);

struct StepTime {
  // By column, stage: when the rank is through all lanes of a first step.
  std::vector<double> ends;
  // From one step's end to the next's.
  double seconds = 0;
  // Of such a step, whose seconds begin at `begin`; lanes may run ahead of it
  // into the one before, or behind it into the next.
  Intervals intervals;
  double begin = 0;
};

// Of `columns` as ExecuteTogether takes them. `drains`: a rank begins a step
// when all its lanes are through the one before, as an engine without a thread
// for them does (lane_runner.h); else lanes go on as the programs let them.
absl::StatusOr<StepTime> TimeStep(const std::vector<Column>& columns,
                                  const Costs& costs, bool drains);

}  // namespace delink
