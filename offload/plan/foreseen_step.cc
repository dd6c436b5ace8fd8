#include "offload/plan/foreseen_step.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/base/rate.h"
#include "framework/base/status_macros.h"
#include "framework/step/time/step_time.h"

namespace delink {
namespace {

using offload::WorkSeconds;

// An update of this rank's elements: the gradient is read, state is read and
// written, the weight is written, and read unless there is a whole master.
Work UpdateWork(const ParamStore& store, int slab) {
  const auto size = [&](Plane plane) {
    return static_cast<double>(SizeOf(store.dtype(slab, plane)));
  };
  const double read =
      store.has(slab, Plane::kMaster) ? 0 : size(Plane::kWeight);
  double state = 0;
  for (const Plane plane : PlanesOf(store, PlaneSet::kState)) {
    state += static_cast<double>(store.bytes(slab, plane));
  }
  const auto elements = static_cast<double>(store.owned(slab).size());
  return {.kernel = "adamw",
          .dtype = store.options().dtype,
          .read = elements * (size(Plane::kGradient) + read) + state,
          .written = elements * size(Plane::kWeight) + state};
}

double UpdateBytes(const ParamStore& store, int slab) {
  return UpdateWork(store, slab).bytes();
}

// Bytes that host memory moves for an update on the host: also the gradient
// that arrives and the weight that leaves.
double HostUpdateBytes(const ParamStore& store, int slab) {
  const double crossing = SizeOf(store.dtype(slab, Plane::kGradient)) +
                          SizeOf(store.dtype(slab, Plane::kWeight));
  return UpdateBytes(store, slab) +
         crossing * static_cast<double>(store.owned(slab).size());
}

double PlaneBytes(const ParamStore& store, int slab, PlaneSet planes) {
  int64_t bytes = 0;
  for (const Plane plane : PlanesOf(store, planes)) {
    bytes += store.bytes(slab, plane);
  }
  return static_cast<double>(bytes);
}

// Of a call that moves bytes alone, if the kernel was measured.
std::optional<double> Priced(const RankOfStep& of, const Work& work) {
  if (of.prices == nullptr ||
      !of.prices->HasMeasured(work.kernel, work.dtype)) {
    return std::nullopt;
  }
  return of.prices->Seconds(work);
}

WorkSeconds VisitSeconds(const RankOfStep& of, size_t index) {
  const Instruction& at = of.program.instructions[index];
  const LayerPlan& layer = At(of.layers, at.layer);
  if (of.prices == nullptr || layer.calls == nullptr) {
    const VisitFlops flops = FlopsOf(layer, at);
    return {.products = Over(flops.forward + flops.backward + flops.recompute,
                             of.rates.flops)};
  }
  WorkSeconds seconds;
  ForEachCalls(layer, at,
               of.analysis != nullptr ? At(of.analysis->written, index)
                                      : std::vector<bool>(),
               [&](const std::vector<KernelCall>& calls, int times) {
                 seconds += of.prices->Seconds(calls, times);
               });
  return seconds;
}

double DeviceUpdateSeconds(const RankOfStep& of, int slab) {
  const Work work = UpdateWork(of.store, slab);
  const double moved = Over(work.bytes(), of.rates.device_memory);
  return of.rates.adamw ? Priced(of, work).value_or(moved) : moved;
}

// Of all instructions but visits.
double OtherSeconds(const RankOfStep& of, const Instruction& at) {
  const offload::StepRates& rates = of.rates;
  const ParamStore& store = of.store;
  const int slab = at.slab < 0 ? -1 : SlabHere(store, at.slab);
  const auto slot = [&] {
    const int32_t slots = SlotClassOf(of.program.shape, at.layer);
    return static_cast<double>(At(of.memory.stored, slots).bytes);
  };
  switch (at.op) {
    case Op::kFetch:
      // A shard of weights that is on the device is not copied from the host.
      if (at.lane == Lane::kGather &&
          store.placement(slab).weight.tier == Tier::kDevice) {
        return 0;
      }
      return Over(PlaneBytes(store, slab, PlaneSetOf(at)), rates.to_device);
    case Op::kEvict:
      return Over(PlaneBytes(store, slab, PlaneSetOf(at)), rates.to_host);
    case Op::kLoadSlot:
      return Over(slot(), rates.to_device);
    case Op::kStoreSlot:
      return Over(slot(), rates.to_host);
    case Op::kUpdate:
      return at.lane == Lane::kHost
                 ? Over(HostUpdateBytes(store, slab), rates.host_memory)
                 : DeviceUpdateSeconds(of, slab);
    case Op::kSquares: {
      const DType dtype = store.dtype(slab, Plane::kGradient);
      const auto bytes =
          static_cast<double>(store.owned(slab).size() * SizeOf(dtype));
      return Priced(of,
                    {.kernel = "sum_squares", .dtype = dtype, .read = bytes})
          .value_or(Over(bytes, rates.device_memory));
    }
    default:
      return 0;
  }
}

const char* NameOf(Lane lane) {
  switch (lane) {
    case Lane::kIn:
    case Lane::kUpdatesIn:
      return "the bus to the device";
    case Lane::kOut:
    case Lane::kUpdatesOut:
      return "the bus to the host";
    case Lane::kGather:
      return "gathers of host-resident weights";
    case Lane::kUpdates:
      return "the device's updates";
    case Lane::kHost:
      return "the host's updates";
    default:
      return "compute";
  }
}

}  // namespace

std::vector<WorkSeconds> SecondsOf(const RankOfStep& rank) {
  std::vector<WorkSeconds> seconds;
  const std::vector<Instruction>& all = rank.program.instructions;
  for (size_t i = 0; i < all.size(); ++i) {
    seconds.push_back(IsVisit(all[i])
                          ? VisitSeconds(rank, i)
                          : WorkSeconds{.others = OtherSeconds(rank, all[i])});
  }
  return seconds;
}

double ForeseenStep::Busy(Lane lane) const {
  double most = 0;
  for (const RankLanes& rank : ranks) {
    double busy = 0;
    for (const LaneUse& use : rank.uses) {
      const bool shares = (IsToDevice(lane) && IsToDevice(use.lane)) ||
                          (IsToHost(lane) && IsToHost(use.lane));
      if (use.lane == lane || shares) busy += use.busy;
    }
    most = std::max(most, busy);
  }
  return most;
}

std::string ForeseenStep::BoundBy() const {
  Lane most = Lane::kCompute;
  for (const Lane lane :
       {Lane::kIn, Lane::kOut, Lane::kGather, Lane::kUpdates, Lane::kHost}) {
    if (Busy(lane) > Busy(most)) most = lane;
  }
  return NameOf(most);
}

absl::StatusOr<ForeseenStep> Foresee(const std::vector<TimedRank>& stages,
                                     int columns) {
  DELINK_CHECK(!stages.empty());
  Column column;
  for (const TimedRank& of : stages) {
    column.push_back({.rank = of.rank, .program = of.program});
  }
  const auto costs = [&](const RankProgram& rank, int32_t index) -> Cost {
    const double time =
        At(At(stages, rank.program->stage).seconds, index).all();
    const bool copy = IsOverBus(At(rank.program->instructions, index).lane);
    return {.time = time, .busy = copy ? time : 0};
  };
  // Programs that move planes have a thread for their lanes.
  DELINK_ASSIGN_OR_RETURN(const StepTime time,
                          TimeStep({column}, costs, /*drains=*/false));
  ForeseenStep step{.seconds = time.seconds};
  for (size_t s = 0; s < column.size(); ++s) {
    step.ranks.push_back(
        {.rank = column[s].rank,
         .uses = UseOfLanes(*column[s].program, time, s, columns)});
  }
  return step;
}

}  // namespace delink
