// The engine's visits (one layer on one micro-batch) and the transfers between
// stages.
#include <algorithm>

#include "framework/base/at.h"
#include "framework/step/engine/engine_state.h"
#include "framework/step/proof/visit_meetings.h"

namespace delink {

void Engine::Visit::Run(Phase phase, const VisitInputs& inputs, Module& layer,
                        const Tensor& in, const Tensor& out) {
  tape.BeginForward(phase, inputs);
  x = tape.Input(in, in.dtype() != DType::kI32);
  y = layer(x);
  tape.Finish(y, out);
}

VisitInputs Engine::InputsOf(const Pass& pass, const Instruction& visit) const {
  const int32_t micro_batch = visit.micro_batch;
  const BatchShape& batch = memory_.batch;
  const int64_t b = batch.micro_batch;
  const int64_t tokens = micro_batch * batch.local_tokens();
  const int32_t* const positions =
      memory_.positions ? records_->positions + tokens : nullptr;
  const int32_t* documents = batch.masked ? positions : nullptr;
  if (records_->documents != nullptr) {
    documents = records_->documents + micro_batch * batch.tokens();
  }
  return {.training = pass.training(),
          .deterministic = memory_.batch.deterministic,
          .remake = memory_.batch.remake,
          .step_key = records_->step_key,
          .samples = records_->samples + micro_batch * b,
          .targets = records_->targets + tokens,
          .all_counted = batch.all_counted,
          .loss = records_->loss,
          .sums = records_->layer_sums + At(memory_.first_sums, visit.layer),
          .again = RunsAgain(visit),
          .counted_targets = records_->counted_targets + micro_batch,
          .positions = positions,
          .documents = documents,
          .places = records_->places,
          .sequences = b,
          .expert_room = memory_.batch.expert_room,
          .expert_overlap = memory_.batch.expert_overlap};
}

void* Engine::SlotAddress(const Pass& pass, int32_t layer, int32_t m) const {
  const int32_t slot = At(At(pass.analysis.slot_of, layer), m);
  const auto pool = static_cast<size_t>(At(pass.analysis.pool_of, layer));
  return slots_.at(memory_.SlotOffset(pool) + slot * memory_.pools[pool].bytes);
}

Tensor Engine::InputTensor(const Pass& pass, int32_t layer, int32_t m) const {
  const Shape& shape = At(layers_, layer).input;
  if (layer == 0) {
    return {records_->inputs + m * memory_.batch.local_tokens(), DType::kI32,
            shape};
  }
  return {SlotAddress(pass, layer, m), env_.store->options().dtype, shape};
}

Tensor Engine::BoundaryTensor(const Pass& pass, int32_t layer,
                              int32_t m) const {
  const int32_t chunk = ChunkOf(pass.program.shape, layer);
  const int32_t which = At(At(pass.analysis.boundary_of, chunk), m);
  return {boundaries_.at(which * memory_.boundary_bytes),
          env_.store->options().dtype, layers_.front().output};
}

void* Engine::SavedRegion(const Pass& pass, const Instruction& at) const {
  if ((at.flags & kRecompute) != 0) return workspace_.data();
  char* const whole =
      static_cast<char*>(SlotAddress(pass, at.layer, at.micro_batch));
  return at.layer == 0 ? whole : whole + memory_.boundary_bytes;
}

std::vector<void*> Engine::ApartAddresses(const Pass& pass,
                                          int32_t layer) const {
  std::vector<void*> addresses;
  const ApartPlaces places = PlaceApart(*env_.store, pass.program.shape, layer);
  for (const int64_t offset : places.offsets) {
    addresses.push_back(offset < 0 ? nullptr : copies_.at(offset));
  }
  return addresses;
}

void* Engine::WholeGradient(const Pass& pass, int slab) const {
  const ParamStore& store = *env_.store;
  const int32_t of = store.local(slab).program_slab;
  const int32_t whole_class = WholeClassOf(pass.program.shape, of);
  if (whole_class < 0) return store.at(slab, Plane::kGradient, 0);
  return copies_.at(memory_.WholeOffset(static_cast<size_t>(whole_class)) +
                    At(pass.analysis.whole_of, of) *
                        At(memory_.wholes, whole_class).bytes);
}

std::vector<void*> Engine::GradientAddresses(const Pass& pass,
                                             const Instruction& at,
                                             const Writes& writes) {
  const auto& [written, cleared] = writes;
  std::vector<void*> addresses;
  if ((at.flags & kApart) != 0) {
    addresses = ApartAddresses(pass, at.layer);
    // Padding between parameters must be zero.
    env_.device->FillZero(
        *compute_stream_, copies_.data(),
        PlaceApart(*env_.store, pass.program.shape, at.layer).bytes);
  }
  const std::vector<int32_t>& slabs =
      At(pass.program.shape.slabs_of_layer, at.layer);
  addresses.resize(slabs.size());
  for (size_t k = 0; k < slabs.size(); ++k) {
    if (addresses[k] != nullptr) continue;
    if (WholeClassOf(pass.program.shape, slabs[k]) < 0) continue;
    const int slab = SlabHere(*env_.store, slabs[k]);
    addresses[k] = WholeGradient(pass, slab);
    if (!written[k]) ClearPadding(slab, addresses[k], *compute_stream_);
    if (std::ranges::find(cleared, slabs[k]) == cleared.end()) continue;
    env_.device->FillZero(*compute_stream_, addresses[k],
                          WholeGradientBytes(*env_.store, slab));
  }
  return addresses;
}

// Of its forward.
Phase Engine::PhaseOf(const Pass& pass, const Instruction& at) {
  return PhasesOf(pass.program.kind, at).front();
}

void Engine::Forward(const Pass& pass, const Instruction& at) {
  Visit& visit = *At(At(visits_, at.layer), at.micro_batch);
  const Phase phase = PhaseOf(pass, at);
  binder_->Bind(LayerAt(at.layer), nullptr);
  const Tensor out = InputTensor(pass, at.layer + 1, at.micro_batch);
  visit.memory.Bind(
      {.slot = phase == Phase::kRecord ? SavedRegion(pass, at) : nullptr,
       .workspace = workspace_.at(memory_.scratch_slot),
       .boundary = out.data()});
  VisitInputs inputs = InputsOf(pass, at);
  const InspectFn inspect = [&](std::string_view what, const Tensor& x) {
    Inspect(pass, at, what, x);
  };
  if (pass.program.kind == PassKind::kDiagnosis) inputs.inspect = &inspect;
  visit.Run(phase, inputs, env_.model->layer(LayerAt(at.layer)),
            InputTensor(pass, at.layer, at.micro_batch), out);
}

void Engine::Loss(const Pass& pass, const Instruction& at,
                  const Writes& writes) {
  Visit& visit = *At(visits_.back(), at.micro_batch);
  const bool backward = (at.flags & kForwardOnly) == 0;
  std::vector<void*> gradients;
  if (backward) gradients = GradientAddresses(pass, at, writes);
  binder_->Bind(LayerAt(at.layer), backward ? &writes.written : nullptr,
                backward ? &gradients : nullptr);
  visit.memory.Bind({.slot = workspace_.data(),
                     .workspace = workspace_.at(memory_.scratch_slot)});
  visit.tape.BeginForward(PhaseOf(pass, at), InputsOf(pass, at));
  const Var x =
      visit.tape.Input(InputTensor(pass, at.layer, at.micro_batch), true);
  env_.model->epilogue().Loss(x);
  if (!backward) return;
  visit.tape.RunBackward(Var(), Tensor(), x,
                         BoundaryTensor(pass, at.layer, at.micro_batch));
  binder_->FinishGradients(LayerAt(at.layer), *compute_stream_);
}

void Engine::Backward(const Pass& pass, const Instruction& at,
                      const Writes& writes) {
  Visit& visit = *At(At(visits_, at.layer), at.micro_batch);
  const std::vector<void*> gradients = GradientAddresses(pass, at, writes);
  binder_->Bind(LayerAt(at.layer), &writes.written, &gradients);
  char* const saved = static_cast<char*>(SavedRegion(pass, at));
  // Under recompute the output is placed behind what is saved. Nobody needs it:
  // it is the next layer's input, which has been used.
  const int64_t slot_bytes =
      At(At(layers_, at.layer).visits, Phase::kRecord).slot_bytes;
  visit.memory.Bind({.slot = saved,
                     .workspace = workspace_.at(memory_.scratch_slot),
                     .boundary = saved + slot_bytes});
  if (RunsAgain(at)) {
    visit.Run(Phase::kRecord, InputsOf(pass, at),
              env_.model->layer(LayerAt(at.layer)),
              InputTensor(pass, at.layer, at.micro_batch), Tensor());
  }
  const Tensor boundary = BoundaryTensor(pass, at.layer, at.micro_batch);
  visit.tape.RunBackward(visit.y, boundary, visit.x,
                         at.layer > 0 ? boundary : Tensor());
  binder_->FinishGradients(LayerAt(at.layer), *compute_stream_);
}

// Only this visit uses the held memory until its second half. It has what a
// repeated forward has saved, then what this half saves.
void Engine::BackwardInput(const Pass& pass, const Instruction& at) {
  Visit& visit = *At(At(visits_, at.layer), at.micro_batch);
  const int32_t pool = SlotClassOf(pass.program.shape, at.layer);
  const int32_t number =
      At(At(pass.analysis.held_of, at.layer), at.micro_batch);
  char* held = static_cast<char*>(slots_.at(
      memory_.HeldOffset(pool) + number * At(memory_.held, pool).bytes));
  void* const workspace = workspace_.at(memory_.scratch_slot);
  binder_->Bind(LayerAt(at.layer), nullptr);
  if (RunsAgain(at)) {
    // Nobody reads the output.
    visit.memory.Bind(
        {.slot = held, .workspace = workspace, .boundary = workspace_.data()});
    visit.Run(Phase::kRecord, InputsOf(pass, at),
              env_.model->layer(LayerAt(at.layer)),
              InputTensor(pass, at.layer, at.micro_batch), Tensor());
    held += At(At(layers_, at.layer).visits, Phase::kRecord).slot_bytes;
  }
  visit.memory.Bind({.slot = held, .workspace = workspace});
  const Tensor boundary = BoundaryTensor(pass, at.layer, at.micro_batch);
  visit.tape.RunBackwardInput(visit.y, boundary, visit.x, boundary);
}

void Engine::BackwardWeight(const Pass& pass, const Instruction& at,
                            const Writes& writes) {
  Visit& visit = *At(At(visits_, at.layer), at.micro_batch);
  const std::vector<void*> gradients = GradientAddresses(pass, at, writes);
  binder_->Bind(LayerAt(at.layer), &writes.written, &gradients);
  visit.memory.Bind({.workspace = workspace_.at(memory_.scratch_slot)});
  visit.tape.RunBackwardWeight();
  binder_->FinishGradients(LayerAt(at.layer), *compute_stream_);
}

// A gradient is sent from the boundary of the layer's chunk, and received into
// that of the chunk before.
std::unique_ptr<Pending> Engine::Exchange(const Pass& pass,
                                          const Instruction& at) {
  const bool gradient = (at.flags & kOfGradient) != 0;
  const int32_t layer = at.op == Op::kSend ? at.layer : at.layer - 1;
  return neighbours_->Exchange(
      pass.program.shape, at,
      gradient ? BoundaryTensor(pass, layer, at.micro_batch)
               : InputTensor(pass, at.layer, at.micro_batch));
}

}  // namespace delink
