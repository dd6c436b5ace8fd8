// Predicts how long a step takes, from measured times of instructions and links
// of a set latency and bandwidth for exchanges between ranks and copies between
// host and device. It runs the joint execution that proves the programs, with
// these costs.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/comm/link.h"
#include "framework/step/proof/joint_execution.h"
#include "framework/step/proof/meetings.h"

namespace delink {

// When an instruction posts an exchange, or begins to wait for its end.
struct ExchangeMoment {
  int32_t exchange = 0;  // number, in the order in which they are posted
  bool waits = false;
  double at = 0;      // of the seconds that are the instruction's own
  double waited = 0;  // then, at least
};

// Seconds that an instruction took on a rank.
struct MeasuredTime {
  double own = 0;  // independent of other ranks
  // Of an exchange, from when all ranks had begun it to its end; of a copy,
  // all.
  double exchanged = 0;
  // If the instruction does work while exchanges within it are under way: their
  // moments in order, of all ranks that exchange, of which this is number
  // `place`.
  std::vector<std::vector<ExchangeMoment>> moments = {};
  size_t place = 0;
};

// What an instruction sends or copies: the number of operations, which follow
// each other, and this rank's bytes in all of them (link.h).
struct Sent {
  int64_t operations = 0;
  int64_t bytes = 0;
  std::vector<int64_t> each = {};  // SentWithin: bytes of each
};

// Links by what they carry. A link without latency and bandwidth takes no time,
// so the measured time remains.
struct StepLinks {
  Link network;     // collectives of slabs, norms and sums
  Link neighbours;  // transfers between stages, each way
  Link visits;      // in the middle of visits and updates
  Link bus;         // between host and device, each way

  const Link& Of(const Instruction& at) const;
};

// For the exchanges in the middle of a visit or an update.
Sent SentWithin(const Program& program, const Instruction& at);

// An exchange takes its measured time or its link's, whichever is longer. One
// link has those of an instruction in the order in which it waits for them.
Cost CostOver(const Link& link, const MeasuredTime& measured, const Sent& sent);

// By rank and the instruction's index.
using MeasuredCosts =
    std::function<MeasuredTime(const RankProgram& rank, int32_t index)>;
using SentBytes = std::function<Sent(const RankProgram& rank, int32_t index)>;
Costs CostsOver(const StepLinks& links, MeasuredCosts measured, SentBytes sent);

struct StepTime {
  // By column, stage: when the rank has finished all lanes of a first step.
  std::vector<double> ends;
  // From one step's end to the next's, in a long run.
  double seconds = 0;
  // Of such a step, which begins at `begin`; lanes may also run before its
  // begin and after its end.
  const Intervals& intervals() const {
    return first ? times.first : times.second;
  }
  double begin = 0;
  bool first = false;  // whether it is the first that was executed
  JointTimes times;    // of two steps
};

// `columns` as in ExecuteTogether. `drains`: a rank begins a step when all its
// lanes have finished the one before, as an engine without a thread for them
// does (engine/lane_runner.h); else lanes go on as the programs let them.
absl::StatusOr<StepTime> TimeStep(const std::vector<Column>& columns,
                                  const Costs& costs, bool drains);

}  // namespace delink
