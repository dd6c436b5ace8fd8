// Moves the values of logical tensors from one end to another, whatever layout
// they have at either: the one mover. Switching, saving, loading, calibration
// and offline delinking are lists of moves.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "framework/comm/communicator.h"
#include "framework/module/value_end.h"

namespace delink {

// One tensor of the source to all tensors of the sink that come from it.
struct Move {
  Field field;
  const LogicalTensor* from = nullptr;  // of the source's layout
  std::vector<const LogicalTensor*> to;
  // Applied once by each rank that reads the values: to what the sink would
  // keep of them, in double; each is rounded once. It gets a few at a time,
  // which says nothing of where they are. Null: as they are.
  std::function<void(std::span<double>)> change;
};

// Values of a piece on the host, of which there are two at a time.
inline constexpr int64_t kMovePiece = int64_t{1} << 18;

// Collective over `comm` where a step crosses ranks; else `comm` is not used.
// All ranks give equal moves and ends of equal layouts, and the source has
// somewhere what the sink wants: a check that names the tensor. What a rank has
// it reads itself; the rest is read by its owner, once for all who want the
// same rectangle, and sent once to each rank (PlanCopy).
//
// Moves of one call are independent, and none reads what another writes: a
// piece that was received is written only when its memory is wanted again. For
// the same reason both ends may be one store only where nothing crosses.
//
// A Read or Write that fails does not stop its rank: transfers go on, their
// contents void, and all ranks return the same error; where no step crosses
// ranks each has its own outcome, and the caller agrees. An error of the
// transport itself returns at once.
//
// Host memory: two pieces of `most` values, a multiple of every grain; the plan
// of one move at a time.
absl::Status MoveValues(ValueSource& source, ValueSink& sink,
                        std::span<const Move> moves, Communicator& comm,
                        int64_t most = kMovePiece);

}  // namespace delink
