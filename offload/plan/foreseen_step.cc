#include "offload/plan/foreseen_step.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/base/status_macros.h"
#include "framework/step/time/step_time.h"

namespace delink {
namespace {

// 0 if the rate is not known.
double Over(double amount, double rate) { return rate > 0 ? amount / rate : 0; }

// Bytes that an update of this rank's elements reads and writes: the gradient
// is read, state is read and written, the weight is written, and read unless
// there is a whole master.
double UpdateBytes(const ParamStore& store, int slab) {
  const auto size = [&](Plane plane) {
    return static_cast<double>(SizeOf(store.dtype(slab, plane)));
  };
  const double read =
      store.has(slab, Plane::kMaster) ? 0 : size(Plane::kWeight);
  double state = 0;
  for (const Plane plane : PlanesOf(store, PlaneSet::kState)) {
    state += static_cast<double>(store.bytes(slab, plane));
  }
  return static_cast<double>(store.owned(slab).size()) *
             (size(Plane::kGradient) + read + size(Plane::kWeight)) +
         2 * state;
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

double SecondsOf(const RankOfStep& of, const Instruction& at) {
  const offload::StepRates& rates = of.rates;
  const ParamStore& store = of.store;
  const int slab = at.slab < 0 ? -1 : SlabHere(store, at.slab);
  const auto slot = [&] {
    const int32_t slots = SlotClassOf(of.program.shape, at.layer);
    return static_cast<double>(At(of.memory.stored, slots).bytes);
  };
  switch (at.op) {
    case Op::kForward:
    case Op::kLoss:
    case Op::kBackward:
    case Op::kBackwardInput:
    case Op::kBackwardWeight: {
      const VisitFlops flops = FlopsOf(At(of.layers, at.layer), at);
      return Over(flops.forward + flops.backward + flops.recompute,
                  rates.flops);
    }
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
                 : Over(UpdateBytes(store, slab), rates.device_memory);
    case Op::kSquares:
      return Over(
          static_cast<double>(store.owned(slab).size() *
                              SizeOf(store.dtype(slab, Plane::kGradient))),
          rates.device_memory);
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

std::vector<double> SecondsOf(const RankOfStep& rank) {
  std::vector<double> seconds;
  for (const Instruction& at : rank.program.instructions) {
    seconds.push_back(SecondsOf(rank, at));
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
    const double time = At(At(stages, rank.program->stage).seconds, index);
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
