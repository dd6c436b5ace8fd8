// The engine's instructions that move planes of slabs between their homes and
// copies on the device, updates at home, and slots that go to the host between
// forward and backward.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "framework/base/at.h"
#include "framework/comm/chain.h"
#include "framework/optim/balance.h"
#include "framework/step/engine/engine_state.h"

namespace delink {

std::unique_ptr<Pending> Engine::DoOverBus(const Pass& pass, int32_t index,
                                           int64_t step) {
  if (env_.bus == nullptr) return Do(pass, index, step);
  const int64_t begin = env_.bus->Now();
  std::unique_ptr<Pending> copy = Do(pass, index, step);
  const Instruction& at = At(pass.program.instructions, index);
  return env_.bus->Slow(std::move(copy), IsToDevice(at.lane), begin,
                        TracedBytes(pass, at));
}

bool Engine::CopiesOverBus() const {
  return std::ranges::any_of(
      bus_streams_, [](const auto& stream) { return stream != nullptr; });
}

// The planes of a copy lie one behind the other.
void Engine::Redirect(int slab, PlaneSet planes, char* copy) {
  ParamStore& store = *env_.store;
  for (const Plane plane : PlanesOf(store, planes)) {
    store.Redirect(slab, plane, copy);
    if (copy != nullptr) copy += AlignUp(store.bytes(slab, plane));
  }
}

// Padding of a whole gradient must be zero, but the memory may have been
// another slab's.
void Engine::ClearPadding(int slab, void* gradient, Stream& stream) {
  const ParamStore& store = *env_.store;
  const int64_t width = SizeOf(store.dtype(slab, Plane::kGradient));
  char* const copy = static_cast<char*>(gradient);
  const int64_t bytes = WholeGradientBytes(store, slab);
  int64_t written = 0;
  const auto clear = [&](int64_t end) {
    if (end <= written) return;
    env_.device->FillZero(stream, copy + written, end - written);
  };
  for (const SlabParam& param : store.slab(slab).params) {
    clear(param.offset * width);
    written = (param.offset + param.elements) * width;
  }
  clear(bytes);
}

std::unique_ptr<Pending> Engine::Arrive(const Pass& pass, int32_t index) {
  const Instruction& at = At(pass.program.instructions, index);
  const PlaneSet planes = PlaneSetOf(at);
  const int32_t copy_class = CopyClassOf(pass.program.shape, planes, at.slab);
  const int32_t number = At(pass.analysis.copies_of, index).front();
  const ParamStore& store = *env_.store;
  const int slab = SlabHere(store, at.slab);
  char* const copy = static_cast<char*>(
      fetched_.at(memory_.FetchedOffset(static_cast<size_t>(copy_class)) +
                  number * At(memory_.fetched, copy_class).bytes));
  if (GathersWeights(pass.program.shape, at)) {
    env_.store->RedirectWhole(slab, Plane::kWeight, copy);
    return gather_groups_->GatherWeights(slab, copy);
  }
  Redirect(slab, planes, copy);
  Stream& stream = StreamOf(at.lane);
  if (at.op == Op::kTake) {
    // A reduction writes all of a shard.
    if (!store.placement(slab).gradient.sharded) {
      ClearPadding(slab, store.now(slab, Plane::kGradient), stream);
    }
    return nullptr;
  }
  for (const Plane plane : PlanesOf(store, planes)) {
    env_.device->CopyFromHost(stream, store.now(slab, plane),
                              store.home(slab, plane),
                              store.bytes(slab, plane));
  }
  return nullptr;
}

std::unique_ptr<Pending> Engine::Evict(const Instruction& at) {
  const ParamStore& store = *env_.store;
  const int slab = SlabHere(store, at.slab);
  Stream& stream = StreamOf(at.lane);
  for (const Plane plane : PlanesOf(store, PlaneSetOf(at))) {
    env_.device->CopyToHost(stream, store.home(slab, plane),
                            store.now(slab, plane), store.bytes(slab, plane));
  }
  return Outward(*store.host(), stream);
}

// Readers of pinned memory wait for the copy on their stream. Memory that is
// not pinned is written only when the host has seen the copy, and is read as
// soon as the host asks for a copy of it.
std::unique_ptr<Pending> Engine::Outward(const HostArena& to, Stream& stream) {
  if (to.pinned()) return nullptr;
  return WaitForStream(*env_.device, stream);
}

// The gradient is at home; the step's UpdateControl is on the device.
std::unique_ptr<Pending> Engine::UpdateOnHost(int slab, int64_t step) {
  UpdateLane& lane = *host_lane_;
  UpdateControl* const control = lane.control();
  env_.device->CopyToHost(lane.stream(), control, records_->ControlOf(step),
                          sizeof(*control));
  const int64_t update = lane.UpdatesAt(step, slab) + 1;
  const auto biases = memory_.biases.find(slab);
  const int64_t* layers = nullptr;
  if (biases != memory_.biases.end()) {
    layers = biases->second.data();
    host_moves_.resize(static_cast<size_t>(memory_.layer_sums));
    env_.device->CopyToHost(lane.stream(), host_moves_.data(),
                            records_->MovesOf(step, memory_),
                            memory_.layer_sums * 8);
  }
  return Chain(WaitForStream(*env_.device, lane.stream()), {[=, this, &lane] {
                 return lane.Post([=, this, &lane] {
                   env_.host_optimizer->Update(lane.stream(), *env_.store, slab,
                                               control, update);
                   if (layers == nullptr) return;
                   MoveBiases(lane.stream(), *env_.store, slab, control,
                              host_moves_.data(), layers);
                 });
               }});
}

// The step's UpdateControl stays on the device until the step after the next;
// by then all visits of the next step have waited for these updates.
std::unique_ptr<Pending> Engine::UpdateLate(int slab, int64_t step) {
  UpdateLane& lane = *update_lane_;
  const UpdateControl* const control = records_->ControlOf(step);
  const int64_t update = lane.UpdatesAt(step, slab) + 1;
  const auto work = [=, this, &lane] {
    env_.optimizer->Update(lane.stream(), *env_.store, slab, control, update);
    MoveBiasesOf(slab, step, lane.stream());
  };
  // A GPU has a stream for it.
  if (!IsCuda(env_.device->kind())) return lane.Post(work);
  work();
  return nullptr;
}

void* Engine::StoredAddress(const Pass& pass, int32_t layer, int32_t m) const {
  const auto pool = static_cast<size_t>(SlotClassOf(pass.program.shape, layer));
  return stored_ + memory_.StoredOffset(pool) +
         At(At(pass.analysis.stored_of, layer), m) *
             At(memory_.stored, pool).bytes;
}

std::unique_ptr<Pending> Engine::StoreSlot(const Pass& pass,
                                           const Instruction& at) {
  const int32_t pool = SlotClassOf(pass.program.shape, at.layer);
  Stream& stream = StreamOf(at.lane);
  env_.device->CopyToHost(stream, StoredAddress(pass, at.layer, at.micro_batch),
                          SlotAddress(pass, at.layer, at.micro_batch),
                          At(memory_.stored, pool).bytes);
  return Outward(*stored_arena_, stream);
}

void Engine::LoadSlot(const Pass& pass, const Instruction& at) {
  const int32_t pool = SlotClassOf(pass.program.shape, at.layer);
  env_.device->CopyFromHost(StreamOf(at.lane),
                            SlotAddress(pass, at.layer, at.micro_batch),
                            StoredAddress(pass, at.layer, at.micro_batch),
                            At(memory_.stored, pool).bytes);
}

}  // namespace delink
