// What the programs of several ranks do together, and in which order. Part of
// ValidatePrograms.
//
// An instruction meets the instructions of other ranks that are done together
// with it. A kReduce, kGather or kFetch of sharded weights meets those of the
// ranks that have the slab (in a probe a kReduce only of its data place), kNorm
// and kSum those of all ranks, a kSend its one kRecv, a kProbe those of the
// ranks that have parts of the gradient that it takes, and a visit those of the
// ranks with which it exchanges something (visit_meetings.h).
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "framework/step/program/instruction.h"
#include "framework/step/program/shape_table.h"

namespace delink {

struct RankProgram {
  int rank = 0;  // for messages
  const Program* program = nullptr;
};

// One rank of each stage, by stage.
using Column = std::vector<RankProgram>;

// Pairs of programs that were compared: ranks with the same two programs agree
// as the first two did.
class ComparedPrograms {
 public:
  bool AreNew(const RankProgram& first, const RankProgram& other) {
    return pairs_.emplace(first.program, other.program).second;
  }

 private:
  std::set<std::pair<const Program*, const Program*>> pairs_;
};

// "rank 2: instruction 5, Reduce(1)"
std::string NameOf(const RankProgram& rank, int32_t index);

bool IsTransfer(const Instruction& i);
// The other end of a transfer, and the stage where it is.
Instruction OppositeOf(Instruction transfer);
int32_t PartnerOf(const Program& program, const Instruction& transfer);

// Which instructions ranks do together, except transfers.
class Collectives {
 public:
  explicit Collectives(const ProgramShape& shape);
  // Whether all ranks of the stage do instructions like `i` with other ranks.
  bool IsOf(int32_t stage, const Instruction& i) const;

 private:
  const std::vector<bool> gathers_;
  const ShapeTable table_;
  std::vector<int32_t> stage_of_;  // by layer
};

// Each program must be one that ValidateProgram passes; all are of one shape
// and kind; equal columns need only one entry. For any two ranks, the
// collectives of a lane that both take part in must have the same order, and
// sends from one to the other must have the order of the receives.
// InvalidArgument names a rank and the first instruction that breaks this.
absl::Status CheckMeetings(const std::vector<Column>& columns);

}  // namespace delink
