#include "recipes/run/check_memory.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/machine_memory.h"
#include "framework/base/status_macros.h"
#include "recipes/run/imagined_stage.h"

namespace delink {
namespace {

constexpr char kKnobs[] =
    "; use a smaller run.micro_batch, run.recompute = \"block\", share more "
    "layers (stage.share), shard the optimizer's state over more ranks "
    "(stage.parallel.zero = 1) or keep some of it on the host (stage.offload)";

// Of a stage: what a rank may take, and whether `needed` bytes, of which `what`
// says more, are as many.
class Room {
 public:
  Room(const RunEnv& env, size_t stage, int ranks)
      : env_(env), stage_(stage), ranks_(ranks) {}

  absl::Status Check(int64_t needed, const std::string& what) const {
    DELINK_RETURN_IF_ERROR(CheckBudget(needed, what));
    const DeviceMemory memory = env_.device->memory();
    const int64_t part = memory.free / ranks_;
    if (memory.total == 0 || needed <= part) return absl::OkStatus();
    std::string room = absl::StrCat(FormatBytes(part), " are free");
    if (ranks_ > 1) {
      absl::StrAppend(&room, " for each of the ", ranks_,
                      " ranks that share it");
    }
    return absl::ResourceExhaustedError(
        absl::StrCat("out of memory: ", what, ", but of ", env_.device->name(),
                     " only ", room, kKnobs));
  }

  // Whether the device has what the budget says.
  absl::Status CheckDevice() const {
    const std::optional<int64_t> budget = rules().device;
    const DeviceMemory memory = env_.device->memory();
    const bool own = memory.total > 0;
    const int64_t there = own ? memory.total / ranks_ : MachineMemory();
    if (!budget || *budget <= there) return absl::OkStatus();
    return AtKey("device",
                 absl::StrCat(FormatBytes(*budget), ", but ",
                              own ? env_.device->name() : "this machine",
                              " has ", FormatBytes(there),
                              ranks_ > 1 ? " for each of its ranks" : ""));
  }

  // Of all ranks of the machine.
  absl::Status CheckHost(int64_t needed) const {
    const std::optional<int64_t> budget = rules().host;
    const int64_t there = MachineMemory();
    if (budget && *budget > there) {
      return AtKey("host",
                   absl::StrCat(FormatBytes(*budget), ", but this machine has ",
                                FormatBytes(there), " of memory"));
    }
    if (budget && needed > *budget) {
      return AtKey("host",
                   absl::StrCat(FormatBytes(*budget), ", but its ranks take ",
                                FormatBytes(needed), " together"));
    }
    if (needed <= there) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat(
        "out of memory of the host: stage ", env_.recipe->stages[stage_].name,
        " has ", FormatBytes(needed),
        " at home there, of all ranks of this machine, which has ",
        FormatBytes(there), "; have more on the device (stage.offload)"));
  }

 private:
  const OffloadRules& rules() const {
    return env_.recipe->stages[stage_].offload;
  }
  absl::Status AtKey(const char* name, const std::string& message) const {
    const std::string key = absl::StrCat("stage[", stage_, "].offload.", name);
    return ErrorAt(*env_.recipe, key, key, message);
  }
  absl::Status CheckBudget(int64_t needed, const std::string& what) const {
    const std::optional<int64_t> budget = rules().device;
    if (!budget || needed <= *budget) return absl::OkStatus();
    return AtKey("device", absl::StrCat(FormatBytes(*budget), ", but ", what));
  }

  const RunEnv& env_;
  const size_t stage_;
  const int ranks_;
};

// Of this rank; adds what the stages have of the host.
absl::Status CheckRank(const RunEnv& env, size_t first, int ranks,
                       std::vector<int64_t>* host) {
  int64_t before = 0;  // bytes of the planes of the stage before
  SharingMap sharing;  // its
  for (size_t i = first; i < env.recipe->stages.size(); ++i) {
    const Room room(env, i, ranks);
    DELINK_RETURN_IF_ERROR(room.CheckDevice());
    DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<ImaginedStage> imagined,
                            ImaginedStage::Create(env, i, env.world->rank()));
    const StageRun& stage = imagined->stage();
    const MemoryAccount account = stage.account();
    (*host)[i] = account.host;
    const std::string name = absl::StrCat("stage ", stage.stage().name);
    DELINK_RETURN_IF_ERROR(
        room.Check(account.total(),
                   absl::StrCat(name, " does not fit: ", ToString(account))));
    if (before > 0) {
      DELINK_ASSIGN_OR_RETURN(const int64_t moved,
                              MovedPlanes(imagined->env(), i, sharing));
      const int64_t most = SwitchPeak(before, moved, account.planes());
      DELINK_RETURN_IF_ERROR(room.Check(
          most, absl::StrCat("the switch into ", name,
                             " does not fit: weights, gradients and state of "
                             "both stages take ",
                             FormatBytes(most))));
    }
    sharing = stage.store().sharing();
    before = account.planes();
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> MovedPlanes(const RunEnv& env, size_t stage,
                                    const SharingMap& before) {
  const std::vector<Stage>& stages = env.recipe->stages;
  if (SameMesh(stages[stage - 1].parallel, stages[stage].parallel)) return 0;
  RunEnv other = env;
  other.shared_plan = nullptr;
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<StageRun> moved,
                          StageRun::Create(other, stage, &before));
  return moved->account().planes();
}

int64_t SwitchPeak(int64_t before, int64_t moved, int64_t planes) {
  return moved > 0 ? std::max(before + moved, moved + planes) : before + planes;
}

absl::Status CheckMemory(const RunEnv& env, size_t first, int ranks,
                         Communicator& local) {
  const std::vector<Stage>& stages = env.recipe->stages;
  const bool offloads =
      std::any_of(stages.begin(), stages.end(),
                  [](const Stage& stage) { return stage.offload.any(); });
  if (env.device->memory().total == 0 && !offloads) return absl::OkStatus();
  std::vector<int64_t> host(stages.size());
  DELINK_RETURN_IF_ERROR(
      AgreeOnStatus(*env.world, CheckRank(env, first, ranks, &host)));
  DELINK_RETURN_IF_ERROR(local
                             .AllReduce(host.data(),
                                        static_cast<int64_t>(host.size()),
                                        DType::kI64, ReduceOp::kSum)
                             ->Wait());
  absl::Status status;
  for (size_t i = first; i < stages.size(); ++i) {
    status.Update(Room(env, i, ranks).CheckHost(host[i]));
  }
  return AgreeOnStatus(*env.world, status);
}

}  // namespace delink
