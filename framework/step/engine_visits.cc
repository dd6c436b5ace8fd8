// The engine's visits, one layer at work on one micro-batch, and what goes
// between those of two stages.
#include "framework/base/at.h"
#include "framework/step/engine_state.h"

namespace delink {

VisitInputs Engine::InputsOf(const Pass& pass, int32_t micro_batch) const {
  const int64_t b = memory_.batch.micro_batch;
  const int64_t tokens = micro_batch * memory_.batch.tokens();
  return {.training = pass.training(),
          .deterministic = memory_.batch.deterministic,
          .remake = memory_.batch.remake,
          .step_key = records_->step_key,
          .samples = records_->samples + micro_batch * b,
          .targets = records_->targets + tokens,
          .loss = records_->loss,
          .positions =
              memory_.batch.masked ? records_->positions + tokens : nullptr};
}

void* Engine::SlotAddress(const Pass& pass, int32_t layer,
                          int32_t micro_batch) const {
  const int32_t slot = At(At(pass.analysis.slot_of, layer), micro_batch);
  const auto pool = static_cast<size_t>(At(pass.analysis.pool_of, layer));
  return slots_.at(memory_.SlotOffset(pool) + slot * memory_.pools[pool].bytes);
}

Tensor Engine::InputTensor(const Pass& pass, int32_t layer,
                           int32_t micro_batch) const {
  const Shape& shape = At(layers_, layer).input;
  if (layer == 0) {
    return {records_->inputs + micro_batch * memory_.batch.tokens(),
            DType::kI32, shape};
  }
  return {SlotAddress(pass, layer, micro_batch), env_.store->options().dtype,
          shape};
}

Tensor Engine::BoundaryTensor(const Pass& pass, int32_t layer,
                              int32_t micro_batch) const {
  const int32_t chunk = ChunkOf(pass.program.shape, layer);
  const int32_t which = At(At(pass.analysis.boundary_of, chunk), micro_batch);
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

Phase Engine::PhaseOf(const Pass& pass, const Instruction& at) {
  if (!pass.training()) return Phase::kEval;
  const bool keeps = (at.flags & (kRecompute | kForwardOnly)) == 0;
  return keeps ? Phase::kRecord : Phase::kForward;
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
  visit.tape.BeginForward(phase, InputsOf(pass, at.micro_batch));
  visit.x = visit.tape.Input(InputTensor(pass, at.layer, at.micro_batch),
                             at.layer > 0);
  visit.y = env_.model->layer(LayerAt(at.layer))(visit.x);
  visit.tape.Finish(visit.y, out);
}

void Engine::Loss(const Pass& pass, const Instruction& at,
                  const std::vector<bool>& written) {
  Visit& visit = *At(visits_.back(), at.micro_batch);
  const bool backward = (at.flags & kForwardOnly) == 0;
  binder_->Bind(LayerAt(at.layer), backward ? &written : nullptr);
  visit.memory.Bind({.slot = workspace_.data(),
                     .workspace = workspace_.at(memory_.scratch_slot)});
  visit.tape.BeginForward(PhaseOf(pass, at), InputsOf(pass, at.micro_batch));
  const Var x =
      visit.tape.Input(InputTensor(pass, at.layer, at.micro_batch), true);
  env_.model->epilogue().Loss(x);
  if (!backward) return;
  visit.tape.RunBackward(Var(), Tensor(), x,
                         BoundaryTensor(pass, at.layer, at.micro_batch));
  binder_->FinishGradients(LayerAt(at.layer), *compute_stream_);
}

void Engine::Backward(const Pass& pass, const Instruction& at,
                      const std::vector<bool>& written) {
  Visit& visit = *At(At(visits_, at.layer), at.micro_batch);
  std::vector<void*> apart;
  if ((at.flags & kApart) != 0) {
    apart = ApartAddresses(pass, at.layer);
    // Padding between parameters counts nothing.
    env_.device->FillZero(
        *compute_stream_, copies_.data(),
        PlaceApart(*env_.store, pass.program.shape, at.layer).bytes);
  }
  binder_->Bind(LayerAt(at.layer), &written, apart.empty() ? nullptr : &apart);
  char* const saved = static_cast<char*>(SavedRegion(pass, at));
  // Under recompute the output has a place behind what is saved; it is the
  // next layer's input, long used by now.
  const int64_t slot_bytes =
      At(At(layers_, at.layer).visits, Phase::kRecord).slot_bytes;
  visit.memory.Bind({.slot = saved,
                     .workspace = workspace_.at(memory_.scratch_slot),
                     .boundary = saved + slot_bytes});
  if ((at.flags & kRecompute) != 0) {
    visit.tape.BeginForward(Phase::kRecord, InputsOf(pass, at.micro_batch));
    visit.x =
        visit.tape.Input(InputTensor(pass, at.layer, at.micro_batch), true);
    visit.y = env_.model->layer(LayerAt(at.layer))(visit.x);
    visit.tape.Finish(visit.y, Tensor());
  }
  const Tensor boundary = BoundaryTensor(pass, at.layer, at.micro_batch);
  visit.tape.RunBackward(visit.y, boundary, visit.x,
                         at.layer > 0 ? boundary : Tensor());
  binder_->FinishGradients(LayerAt(at.layer), *compute_stream_);
}

// A gradient leaves as that of the layer's chunk, and comes to the one before.
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
