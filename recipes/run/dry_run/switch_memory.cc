#include "recipes/run/dry_run/switch_memory.h"

#include <cstddef>
#include <memory>
#include <optional>

#include "framework/base/at.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

PlaneBytes operator+(const PlaneBytes& a, const PlaneBytes& b) {
  return {.device = a.device + b.device, .host = a.host + b.host};
}

// The old stage in the layout of `stage`, on one of its ranks; null if its
// layout does not change.
absl::StatusOr<std::unique_ptr<ImaginedStage>> LaidOut(
    const ImaginedStage& stage, int rank) {
  const size_t index = stage.stage().index();
  if (!TakesLayout(*stage.env().recipe, index - 1, index)) return nullptr;
  RunEnv env = stage.env();
  env.shared = nullptr;  // of another stage
  return ImaginedStage::CreateLaidOut(env, index - 1, index, rank);
}

// For a rank with the planes `before` and `after`, and with the old stage's
// memory in the new layout, if that changes.
SwitchMemory AtSwitch(const ImaginedStage& stage, const PlaneBytes& before,
                      const PlaneBytes& after, const RankMemory* laid_out) {
  const size_t index = stage.stage().index();
  const std::vector<Stage>& stages = stage.env().recipe->stages;
  SwitchMemory memory;
  if (SameMesh(stages[index - 1].parallel, stages[index].parallel)) {
    memory.planes = before + after;
  } else {
    memory.planes = laid_out->planes + Most(before, after);
  }
  if (laid_out == nullptr) return memory;
  memory.laid_out = {.device = laid_out->account.total(),
                     .host = laid_out->account.host};
  return memory;
}

}  // namespace

PlaneBytes SwitchMemory::most() const { return Most(planes, laid_out); }

absl::StatusOr<std::vector<SwitchMemory>> SwitchByRank(
    const ImaginedStage& first, const std::vector<PlaneBytes>& planes) {
  DELINK_ASSIGN_OR_RETURN(const std::vector<PlaneBytes> after,
                          PlanesByRank(first.stage().store()));
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<ImaginedStage> stage,
                          LaidOut(first, 0));
  std::vector<RankMemory> laid_out;
  if (stage != nullptr) {
    DELINK_ASSIGN_OR_RETURN(laid_out, MemoryByRank(*stage));
  }
  std::vector<SwitchMemory> all;
  for (size_t rank = 0; rank < after.size(); ++rank) {
    all.push_back(AtSwitch(first, At(planes, rank), after[rank],
                           laid_out.empty() ? nullptr : &laid_out[rank]));
  }
  return all;
}

absl::StatusOr<SwitchMemory> SwitchOf(const ImaginedStage& stage,
                                      const PlaneBytes& planes) {
  const ParamStore& store = stage.stage().store();
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<ImaginedStage> before,
                          LaidOut(stage, store.rank()));
  std::optional<RankMemory> laid_out;
  if (before != nullptr) laid_out = MemoryOf(*before);
  return AtSwitch(stage, planes, PlaneBytesOf(store),
                  laid_out.has_value() ? &*laid_out : nullptr);
}

}  // namespace delink
