#include "offload/plan/step_load.h"

#include <algorithm>
#include <array>
#include <utility>

#include "framework/base/at.h"
#include "framework/step/shape_table.h"

namespace delink {
namespace {

// As HostTraffic (bounds.h) counts, of the elements that this rank updates.
double UpdateTraffic(const ParamStore& store, int slab) {
  const auto size = [&](Plane plane) {
    return static_cast<double>(SizeOf(store.dtype(plane)));
  };
  const double read = store.has(Plane::kMaster) ? 0 : size(Plane::kWeight);
  double state = 0;
  for (const Plane plane : PlanesOf(store, PlaneSet::kState)) {
    state += static_cast<double>(store.bytes(slab, plane));
  }
  return static_cast<double>(store.owned(slab).size()) *
             (2 * size(Plane::kGradient) + read + 2 * size(Plane::kWeight)) +
         2 * state;
}

}  // namespace

StepLoad LoadOf(const Program& program, const ParamStore& store,
                const StepMemory& memory) {
  StepLoad load;
  bool updates = false;
  for (const Instruction& at : program.instructions) {
    updates = updates || at.op == Op::kNorm;
    if (at.op == Op::kUpdate && HostUpdates(program.shape, at.slab)) {
      load.host += UpdateTraffic(store, SlabHere(store, at.slab));
    }
    if (at.op == Op::kStoreSlot || at.op == Op::kLoadSlot) {
      const int32_t slots = SlotClassOf(program.shape, at.layer);
      (at.op == Op::kLoadSlot ? load.in : load.out) +=
          At(memory.stored, slots).bytes;
    }
    if (at.op != Op::kFetch && at.op != Op::kEvict) continue;
    int64_t& bytes = at.op == Op::kFetch
                         ? (updates ? load.updates_in : load.in)
                         : (updates ? load.updates_out : load.out);
    for (const Plane plane : PlanesOf(store, PlaneSetOf(at))) {
      bytes += store.bytes(SlabHere(store, at.slab), plane);
    }
  }
  return load;
}

LaneSeconds SecondsOf(const StepLoad& load, const offload::StepRates& rates) {
  const auto in = [&](int64_t bytes) {
    return static_cast<double>(bytes) / rates.to_device;
  };
  const auto out = [&](int64_t bytes) {
    return static_cast<double>(bytes) / rates.to_host;
  };
  LaneSeconds seconds{.compute = load.flops / rates.flops,
                      .in = in(load.in + load.updates_in),
                      .out = out(load.out + load.updates_out),
                      .host = load.host / rates.host_memory};
  seconds.step = std::max({seconds.compute, in(load.in), out(load.out)}) +
                 std::max(in(load.updates_in), out(load.updates_out)) +
                 std::max(0.0, seconds.host - seconds.compute / 3);
  return seconds;
}

std::string BoundBy(const LaneSeconds& seconds) {
  const std::array<std::pair<double, const char*>, 4> lanes = {
      {{seconds.compute, "compute"},
       {seconds.in, "the bus to the device"},
       {seconds.out, "the bus to the host"},
       {seconds.host, "the host's memory"}}};
  const auto* const most = std::max_element(
      lanes.begin(), lanes.end(),
      [](const auto& a, const auto& b) { return a.first < b.first; });
  return most->second;
}

}  // namespace delink
