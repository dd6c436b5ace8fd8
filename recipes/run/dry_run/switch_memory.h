// The memory of each tier that a switch between two stages takes. It is planned
// by the code that switches, without allocating.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "recipes/run/dry_run/imagined_stage.h"

namespace delink {

// The most that a rank holds at once.
struct SwitchMemory {
  // Planes: those of both stages. If their meshes differ: those of the old
  // stage in the new layout, and in addition the larger of the old stage's and
  // the new stage's planes.
  PlaneBytes planes;
  // All memory of the old stage from StageRun::TakeLayout until its planes are
  // converted; zero if its layout does not change.
  PlaneBytes laid_out;

  PlaneBytes most() const;
};

// By rank, at the switch into the stage of `first`. Its env() has the homes of
// the old stage; `planes` are the old stage's (PlanesByRank).
absl::StatusOr<std::vector<SwitchMemory>> SwitchByRank(
    const ImaginedStage& first, const std::vector<PlaneBytes>& planes);
// For the rank of `stage` only, which has `planes` of the old stage.
absl::StatusOr<SwitchMemory> SwitchOf(const ImaginedStage& stage,
                                      const PlaneBytes& planes);

}  // namespace delink
