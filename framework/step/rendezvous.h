// Whether programs of several ranks meet in their collectives: part of
// ValidatePrograms.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "framework/step/instruction.h"

namespace delink {

struct RankProgram {
  int rank = 0;
  const Program* program = nullptr;
};

// Each program must be one that ValidateProgram passes; ranks whose programs
// are equal need one entry only. The collectives of a lane must be the same in
// the same order everywhere; then two steps are executed, each lane in its
// order, each instruction once its dependencies are complete, a collective once
// it is the next of its lane on every rank. InvalidArgument names a rank and an
// instruction that would wait for ever.
absl::Status CheckRendezvous(const std::vector<RankProgram>& ranks);

}  // namespace delink
