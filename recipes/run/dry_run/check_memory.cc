#include "recipes/run/dry_run/check_memory.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/machine_memory.h"
#include "framework/base/status_macros.h"
#include "recipes/run/dry_run/find_homes.h"
#include "recipes/run/dry_run/imagined_stage.h"
#include "recipes/run/dry_run/switch_memory.h"

namespace delink {
namespace {

constexpr char kStepKnobs[] =
    "; use a smaller run.micro_batch, run.recompute = \"block\", share more "
    "layers (stage.share), shard state, gradients and weights over more ranks "
    "(stage.parallel.zero = 1 to 3) or keep some of it on the host "
    "(stage.offload)";

// What would help at the switch into a stage.
std::string SwitchKnobs(size_t stage) {
  return absl::StrCat("; keep some of both on the host (stage[", stage - 1,
                      "].offload and stage[", stage,
                      "].offload: a budget, or state = \"host\"), share more "
                      "layers (stage.share) or shard the optimizer's state "
                      "over more ranks (stage.parallel.zero = 1)");
}

// The limits of a stage. Each check compares `needed` bytes, which `what`
// describes, with a limit; on failure `knobs` says what would help.
class Room {
 public:
  Room(const RunEnv& env, size_t stage, int ranks)
      : env_(env), stage_(stage), ranks_(ranks) {}

  absl::Status Check(int64_t needed, const std::string& what,
                     const std::string& knobs) const {
    DELINK_RETURN_IF_ERROR(CheckBudget(needed, what + knobs));
    const DeviceMemory memory = env_.device->memory();
    const int64_t part = memory.free / ranks_;
    if (memory.total == 0 || needed <= part) return absl::OkStatus();
    std::string room = absl::StrCat(FormatBytes(part), " free");
    if (ranks_ > 1) {
      absl::StrAppend(&room, " for each of the ", ranks_,
                      " ranks that share it");
    }
    return absl::ResourceExhaustedError(
        absl::StrCat("out of memory: ", what, ", but ", env_.device->name(),
                     " has only ", room, knobs));
  }

  // The least of the limits of a rank's device.
  int64_t limit() const {
    const DeviceMemory memory = env_.device->memory();
    const int64_t part = memory.total == 0 ? std::numeric_limits<int64_t>::max()
                                           : memory.free / ranks_;
    return std::min(part, rules().device.value_or(part));
  }

  // Checks that the device has as much as the budget.
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

  // For all ranks of the machine: the stage, and the switch into it.
  absl::Status CheckHost(int64_t needed, int64_t at_switch) const {
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
    if (budget && at_switch > *budget) {
      return AtKey("host", absl::StrCat(FormatBytes(*budget),
                                        ", but at the switch its ranks and ",
                                        "those of the stage before take ",
                                        FormatBytes(at_switch), " together"));
    }
    const int64_t most = std::max(needed, at_switch);
    if (most <= there) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat(
        "out of host memory: stage ", env_.recipe->stages[stage_].name,
        most > needed ? ", with the stage before it at the switch," : "",
        " needs ", FormatBytes(most),
        " for all ranks of this machine, which has ", FormatBytes(there),
        "; keep more on the device (stage.offload)"));
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

// Bytes of the host by stage, in its steps and at the switch into it.
struct HostUse {
  explicit HostUse(size_t stages) : steps(stages), switches(stages) {}
  std::vector<int64_t> steps, switches;
};

// Checks this rank, and fills `host` with its use of host memory.
absl::Status CheckRank(const RunEnv& env, size_t first, int ranks,
                       HostUse* host) {
  PlaneBytes before;
  RunEnv planned = env;
  planned.more_room = 2;
  for (size_t i = first; i < env.recipe->stages.size(); ++i) {
    const Room room(env, i, ranks);
    DELINK_RETURN_IF_ERROR(room.CheckDevice());
    DELINK_ASSIGN_OR_RETURN(
        const std::unique_ptr<ImaginedStage> imagined,
        ImaginedStage::Create(planned, i, env.world->rank()));
    const StageRun& stage = imagined->stage();
    const MemoryAccount account = stage.account();
    host->steps[i] = account.host;
    const std::string name = absl::StrCat("stage ", stage.stage().name);
    const absl::Status fits = room.Check(
        account.total(),
        absl::StrCat(name, " does not fit: ", ToString(account)), kStepKnobs);
    if (!fits.ok()) {
      return absl::Status(
          fits.code(),
          absl::StrCat(std::string(fits.message()),
                       ZeroThatFits(env, first, i, room.limit(),
                                    RatesFor(*env.device, *env.recipe))));
    }
    if (i > first) {
      DELINK_ASSIGN_OR_RETURN(const SwitchMemory at_switch,
                              SwitchOf(*imagined, before));
      host->switches[i] = at_switch.most().host;
      const std::string into = absl::StrCat("the switch into ", name);
      DELINK_RETURN_IF_ERROR(
          room.Check(at_switch.planes.device,
                     absl::StrCat(into,
                                  " does not fit: weights, gradients and state "
                                  "of both stages take ",
                                  FormatBytes(at_switch.planes.device)),
                     SwitchKnobs(i)));
      DELINK_RETURN_IF_ERROR(room.Check(
          at_switch.laid_out.device,
          absl::StrCat(
              into, " does not fit: stage ", env.recipe->stages[i - 1].name,
              ", which is then evaluated in this stage's layout, takes ",
              FormatBytes(at_switch.laid_out.device)),
          kStepKnobs));
    }
    before = PlaneBytesOf(stage.store());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckMemory(const RunEnv& env, size_t first, int ranks,
                         Communicator& local) {
  const std::vector<Stage>& stages = env.recipe->stages;
  const bool offloads =
      std::any_of(stages.begin(), stages.end(),
                  [](const Stage& stage) { return stage.offload.any(); });
  if (env.device->memory().total == 0 && !offloads) return absl::OkStatus();
  HostUse host(stages.size());
  DELINK_RETURN_IF_ERROR(
      AgreeOnStatus(*env.world, CheckRank(env, first, ranks, &host)));
  for (std::vector<int64_t>* bytes : {&host.steps, &host.switches}) {
    DELINK_RETURN_IF_ERROR(local
                               .AllReduce(bytes->data(),
                                          static_cast<int64_t>(bytes->size()),
                                          DType::kI64, ReduceOp::kSum)
                               ->Wait());
  }
  absl::Status status;
  for (size_t i = first; i < stages.size(); ++i) {
    status.Update(
        Room(env, i, ranks).CheckHost(host.steps[i], host.switches[i]));
  }
  return AgreeOnStatus(*env.world, status);
}

}  // namespace delink
