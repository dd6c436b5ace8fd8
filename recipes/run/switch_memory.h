// What a switch between two stages takes of each tier, planned as the stages
// themselves are: by the code that switches, without any memory.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "recipes/run/imagined_stage.h"

namespace delink {

// The most that a rank holds at a time.
struct SwitchMemory {
  // Of planes: those of both stages, or, where their ranks are arranged
  // otherwise, those of either and those of the stage before as they are once
  // it is laid out as the stage to come.
  PlaneBytes planes;
  // Of all that the stage before takes from when it is laid out so
  // (StageRun::TakeLayout) until its planes go over; none where it stays as it
  // was.
  PlaneBytes laid_out;

  PlaneBytes most() const;
};

// By rank, at the switch into the stage that `first` is of, whose env() knows
// the homes of the stage before, of which ranks have `planes` (PlanesByRank).
absl::StatusOr<std::vector<SwitchMemory>> SwitchByRank(
    const ImaginedStage& first, const std::vector<PlaneBytes>& planes);
// Of the rank of `stage` alone, which has `planes` of the stage before.
absl::StatusOr<SwitchMemory> SwitchOf(const ImaginedStage& stage,
                                      const PlaneBytes& planes);

}  // namespace delink
