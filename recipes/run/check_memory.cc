#include "recipes/run/check_memory.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "recipes/run/imagined_ranks.h"

namespace delink {
namespace {

constexpr char kKnobs[] =
    "; use a smaller run.micro_batch, run.recompute = \"block\", share more "
    "layers (stage.share) or shard the optimizer's state over more ranks "
    "(stage.parallel.zero = 1)";

// What a rank may take, and whether `needed` bytes, of which `what` says more,
// are as many.
struct Room {
  std::string device;
  int64_t free;
  int ranks;

  absl::Status Check(int64_t needed, const std::string& what) const {
    const int64_t part = free / ranks;
    if (needed <= part) return absl::OkStatus();
    std::string room = absl::StrCat(FormatBytes(part), " are free");
    if (ranks > 1) {
      absl::StrAppend(&room, " for each of the ", ranks,
                      " ranks that share it");
    }
    return absl::ResourceExhaustedError(
        absl::StrCat(what, ", but of ", device, " only ", room, kKnobs));
  }
};

}  // namespace

absl::StatusOr<int64_t> MovedPlanes(const RunEnv& env, size_t stage,
                                    const SharingMap& before) {
  const std::vector<Stage>& stages = env.recipe->stages;
  if (SameMesh(stages[stage - 1].parallel, stages[stage].parallel)) return 0;
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<StageRun> moved,
                          StageRun::Create(env, stage, &before));
  return moved->account().planes();
}

absl::Status CheckMemory(const RunEnv& env, size_t first, int ranks) {
  const DeviceMemory memory = env.device->memory();
  if (memory.total == 0) return absl::OkStatus();
  const Room room{env.device->name(), memory.free, ranks};
  const std::unique_ptr<Device> meta = NewMetaDevice(env.device->kind());
  ImaginedRanks world(env.world->size(), env.world->rank());
  ImaginedRanks network(world.size(), world.rank());
  RunEnv planned = env;
  planned.device = meta.get();
  planned.world = &world;
  planned.network = &network;
  planned.lane_threads = false;
  planned.watch = nullptr;
  planned.trace = nullptr;
  int64_t before = 0;  // bytes of the planes of the stage before
  SharingMap sharing;  // its
  for (size_t i = first; i < env.recipe->stages.size(); ++i) {
    DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<StageRun> stage,
                            StageRun::Create(planned, i));
    const MemoryAccount account = stage->account();
    const std::string name = absl::StrCat("stage ", stage->stage().name);
    DELINK_RETURN_IF_ERROR(room.Check(
        account.total(), absl::StrCat("out of memory: ", name,
                                      " does not fit: ", ToString(account))));
    const int64_t planes = account.planes();
    if (before > 0) {
      DELINK_ASSIGN_OR_RETURN(const int64_t moved,
                              MovedPlanes(planned, i, sharing));
      const int64_t most = moved > 0 ? std::max(before + moved, moved + planes)
                                     : before + planes;
      DELINK_RETURN_IF_ERROR(room.Check(
          most, absl::StrCat("out of memory: the switch into ", name,
                             " does not fit: weights, gradients and state of "
                             "both stages take ",
                             FormatBytes(most))));
    }
    sharing = stage->store().sharing();
    before = planes;
  }
  return absl::OkStatus();
}

}  // namespace delink
