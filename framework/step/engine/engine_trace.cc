// What the engine reports to a trace.
#include <cstdint>
#include <utility>

#include "framework/base/at.h"
#include "framework/step/engine/engine_state.h"

namespace delink {

// Bytes that an instruction exchanges on this rank; of a slab also those that
// it reads, updates or copies between a home and a copy; of a slot those that
// it copies to the host or back.
int64_t Engine::TracedBytes(const Pass& pass, const Instruction& at) const {
  const ParamStore& store = *env_.store;
  if (at.op == Op::kNorm) {
    const bool exchanged = env_.compute->size() > 1;
    return exchanged ? memory_.sums * SizeOf(DType::kF64) : 0;
  }
  if (at.op == Op::kSend || at.op == Op::kRecv) {
    return At(layers_, at.layer).input.elements() *
           SizeOf(store.options().dtype);
  }
  if (at.op == Op::kStoreSlot || at.op == Op::kLoadSlot) {
    return At(memory_.stored, SlotClassOf(pass.program.shape, at.layer)).bytes;
  }
  if (at.slab < 0) return 0;
  const int slab = SlabHere(store, at.slab);
  if (at.op == Op::kSquares) {
    return store.owned(slab).size() *
           SizeOf(store.dtype(slab, Plane::kGradient));
  }
  if (at.op == Op::kUpdate) {
    return store.held(slab, Plane::kState0).size() *
           SizeOf(store.dtype(slab, store.master(slab)));
  }
  if (IsOfPlanes(at)) {
    int64_t bytes = 0;
    if (at.op == Op::kTake || at.op == Op::kRelease) return bytes;
    if (GathersWeights(pass.program.shape, at)) {
      return store.whole_bytes(slab, Plane::kWeight);
    }
    for (const Plane plane : PlanesOf(store, PlaneSetOf(at))) {
      bytes += store.bytes(slab, plane);
    }
    return bytes;
  }
  if (GroupSize(store, slab) == 1) return 0;
  // Of sharded weights only those that are here are gathered.
  if (at.op == Op::kGather) return store.bytes(slab, Plane::kWeight);
  return store.whole_bytes(slab, Plane::kGradient);
}

void Engine::Describe(Pass& pass) {
  std::vector<Trace::Entry> entries;
  for (size_t i = 0; i < pass.program.instructions.size(); ++i) {
    const Instruction& at = pass.program.instructions[i];
    Trace::Entry entry{
        .at = at, .name = pass.names[i], .bytes = TracedBytes(pass, at)};
    if (at.slab >= 0) {
      entry.of = env_.store->slab(SlabHere(*env_.store, at.slab)).name;
    }
    if (at.layer >= 0) {
      entry.of = env_.model->layer_name(LayerAt(at.layer));
      const VisitFlops flops = FlopsOf(At(layers_, at.layer), at);
      entry.forward_flops = flops.forward;
      entry.backward_flops = flops.backward;
      entry.recompute_flops = flops.recompute;
    }
    entries.push_back(std::move(entry));
  }
  Trace& trace = *env_.trace;
  pass.traced = trace.AddProgram(std::move(entries));
  if (env_.device->kind() == DeviceKind::kCuda) {
    times_ = std::make_unique<DeviceTimes>(*env_.device, trace, pass.traced);
  }
}

void Engine::TraceExchange(const VisitExchange& what,
                           Trace::Clock::time_point posted,
                           Trace::Clock::time_point waited) {
  if (running_ == nullptr || !Traced(*running_, step_)) return;
  env_.trace->AddExchange({.step = step_,
                           .program = running_->traced,
                           .index = computing_,
                           .what = what,
                           .posted = posted,
                           .begin = waited,
                           .end = Trace::Clock::now()});
}

DeviceTimes* Engine::TimesOf(const Pass& pass, int64_t step) const {
  return Traced(pass, step) ? times_.get() : nullptr;
}

}  // namespace delink
