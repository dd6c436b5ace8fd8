// Moves the values of logical tensors from a source to a sink, whatever their
// layouts. Switching, saving, loading, calibration and offline delinking are
// lists of moves.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "framework/comm/communicator.h"
#include "framework/module/value_end.h"

namespace delink {

// One tensor of the source, and all tensors of the sink that get its values.
struct Move {
  Field field;
  const LogicalTensor* from = nullptr;  // of the source's layout
  std::vector<const LogicalTensor*> to;
  // Applied once by each rank that reads the values, in double, to the values
  // as the sink would keep them; each result is rounded once. It gets a few
  // values at a time: neighbours, of which the first has this number in the
  // tensor's grid. Null: no change.
  std::function<void(std::span<double>, int64_t first)> change;
};

// Values of a piece. Two pieces are on the host at a time.
inline constexpr int64_t kMovePiece = int64_t{1} << 18;

// Collective over `comm` if a step crosses ranks; else `comm` is not used. All
// ranks give equal moves and ends of equal layouts. Everything that the sink
// wants must be somewhere in the source: a check that names the tensor. A rank
// reads itself what it has. The owner reads the rest, once for all ranks that
// want the same rectangle, and sends it once to each of them (PlanCopy).
//
// Moves of one call are independent, and none reads what another writes: a
// received piece is written only when its memory is needed again. For the same
// reason both ends may be one store only if nothing crosses ranks.
//
// A failed Read or Write does not stop its rank: transfers continue with void
// contents, and all ranks return the same error. If no step crosses ranks, each
// returns its own status, and the caller must agree on one. An error of the
// transport itself returns at once.
//
// Host memory: two pieces of `most` values, a multiple of every grain; and the
// plan of one move at a time.
absl::Status MoveValues(ValueSource& source, ValueSink& sink,
                        std::span<const Move> moves, Communicator& comm,
                        int64_t most = kMovePiece);

}  // namespace delink
