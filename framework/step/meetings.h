// What the programs of several ranks do together, and in which order. Part of
// ValidatePrograms.
//
// An instruction meets those of other ranks that it is done together with: a
// kReduce, or a kGather, those of the ranks that have the
// slab, of its data place alone where it is a probe's, kNorm and kSum those of
// all ranks, a kSend its one kRecv, a kProbe those of the ranks that each have
// a part of the gradient that it takes, a visit that exchanges something those
// of the ranks it exchanges that with (visit_meetings.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "framework/step/instruction.h"
#include "framework/step/shape_table.h"

namespace delink {

struct RankProgram {
  int rank = 0;  // for messages
  const Program* program = nullptr;
};

// One rank of each stage, by stage.
using Column = std::vector<RankProgram>;

// "rank 2: instruction 5, Reduce(1)"
std::string NameOf(const RankProgram& rank, int32_t index);

bool IsTransfer(const Instruction& i);
// The other end of a transfer, and the stage where it is.
Instruction OppositeOf(Instruction transfer);
int32_t PartnerOf(const Program& program, const Instruction& transfer);

// Which instructions ranks do together, transfers apart.
class Collectives {
 public:
  explicit Collectives(const ProgramShape& shape);
  // Whether all ranks of the stage do it, one as `i` is, with others.
  bool IsOf(int32_t stage, const Instruction& i) const;

 private:
  const std::vector<bool> gathers_;
  const ShapeTable table_;
  std::vector<int32_t> stage_of_;  // by layer
};

// Each program must be one that ValidateProgram passes, all are of one shape
// and kind; columns that are equal need one entry only. Of two ranks the
// collectives of a lane that are of both must have one order, and what one
// sends to the other that in which the other receives it. InvalidArgument names
// a rank and the first instruction that is otherwise.
absl::Status CheckMeetings(const std::vector<Column>& columns);

}  // namespace delink
