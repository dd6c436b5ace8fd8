#include "framework/step/memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"

namespace delink {
namespace {

const PhasePlan& PlanOf(const LayerPlan& layer, Phase phase) {
  return At(layer.visits, phase);
}

int64_t LargestWorkspace(const std::vector<LayerPlan>& layers) {
  int64_t bytes = 0;
  for (const LayerPlan& layer : layers) {
    for (const PhasePlan& plan : layer.visits) {
      bytes = std::max(bytes, plan.workspace_bytes);
    }
  }
  return bytes;
}

int64_t LargestShard(const ParamStore& store) {
  int64_t bytes = 0;
  for (size_t s = 0; s < store.slabs().size(); ++s) {
    const int ranks = GroupSize(store, static_cast<int>(s));
    if (ranks == 1) continue;
    bytes = std::max(bytes, store.slabs()[s].ShardElements(ranks) *
                                SizeOf(store.dtype(Plane::kGradient)));
  }
  return bytes;
}

// Of the squares of one slab.
int64_t LargestSums(const ParamStore& store) {
  int64_t blocks = 0;
  for (const Slab& slab : store.slabs()) {
    blocks = std::max(blocks, slab.blocks());
  }
  return AlignUp(blocks * SizeOf(DType::kF64));
}

// Everything small that a step needs on the device; see Engine::Records.
int64_t RecordBytes(const StepMemory& memory) {
  const int64_t tokens = memory.micro_batches * memory.batch.tokens();
  const int64_t samples = memory.micro_batches * memory.batch.micro_batch;
  const int64_t by_token = memory.batch.masked ? 3 : 2;
  return by_token * AlignUp(tokens * SizeOf(DType::kI32)) +
         AlignUp(samples * SizeOf(DType::kI64)) +
         AlignUp(memory.sums * SizeOf(DType::kF64)) + 3 * kAlignment;
}

}  // namespace

StepMemory SizeStep(const ParamStore& store,
                    const std::vector<LayerPlan>& layers,
                    const BatchShape& batch, const Passes& passes) {
  StepMemory m{.batch = batch};
  const DType dtype = store.options().dtype;
  m.boundary_bytes = AlignUp(layers.front().output.elements() * SizeOf(dtype));
  m.prologue_slot = PlanOf(layers.front(), Phase::kRecord).slot_bytes;
  m.epilogue_slot = m.boundary_bytes;
  m.block_slot = m.boundary_bytes;
  m.scratch_slot = PlanOf(layers.back(), Phase::kRecord).slot_bytes;
  const auto grow = [](int64_t* size, int64_t to) {
    *size = std::max(*size, to);
  };
  m.workspace = LargestWorkspace(layers);
  m.sums = store.layout().cells() + kTailSums;
  int64_t apart = 0;  // bytes of gradients
  for (const auto& [kind, pass] : passes) {
    m.micro_batches =
        std::max(m.micro_batches, pass.program.shape.micro_batches);
    grow(&m.prologue_slots, pass.analysis.prologue_slots);
    grow(&m.block_slots, pass.analysis.block_slots);
    grow(&m.epilogue_slots, pass.analysis.epilogue_slots);
    grow(&m.boundaries, pass.analysis.boundaries);
    for (const Instruction& at : pass.program.instructions) {
      if (at.op != Op::kBackward || at.layer == 0) continue;
      if ((at.flags & kApart) != 0) {
        grow(&apart, PlaceApart(store, pass.program.shape, at.layer).bytes);
      }
      const int64_t saved =
          PlanOf(At(layers, at.layer), Phase::kRecord).slot_bytes;
      if ((at.flags & kRecompute) != 0) {
        m.recompute = true;
        grow(&m.scratch_slot, saved + m.boundary_bytes);
      } else {
        grow(&m.block_slot, m.boundary_bytes + saved);
      }
    }
  }
  m.copies = std::max(AlignUp(LargestShard(store)), apart);
  // Squares of what is kept apart are summed up where visits work.
  if (apart > 0) grow(&m.workspace, LargestSums(store) - m.scratch_slot);
  m.records = RecordBytes(m);
  return m;
}

ApartPlaces PlaceApart(const ParamStore& store, const ProgramShape& shape,
                       int32_t layer) {
  const std::vector<int32_t> shared = SharedSlabsOf(shape, layer);
  ApartPlaces places;
  for (const int32_t slab : At(shape.slabs_of_layer, layer)) {
    if (std::find(shared.begin(), shared.end(), slab) == shared.end()) {
      places.offsets.push_back(-1);
      continue;
    }
    // As much as the slab's own gradient.
    places.offsets.push_back(places.bytes);
    places.bytes += AlignUp(store.bytes(store.SlabOf(slab), Plane::kGradient));
  }
  return places;
}

MemoryAccount AccountOf(const ParamStore& store, const StepMemory& memory) {
  return {.weights = store.bytes(Plane::kWeight),
          .gradients = store.bytes(Plane::kGradient),
          .state = store.state_bytes(),
          .slots = memory.slot_bytes(),
          .boundaries = memory.boundaries * memory.boundary_bytes,
          .workspace = memory.scratch_slot + memory.workspace,
          .copies = memory.copies,
          .records = memory.records,
          .overhead = store.device().overhead()};
}

std::string ToString(const MemoryAccount& account) {
  std::string text = absl::StrCat(
      "weights ", FormatBytes(account.weights), ", gradients ",
      FormatBytes(account.gradients), ", optimizer state ",
      FormatBytes(account.state), ", activations ",
      FormatBytes(account.activations()), " (slots ",
      FormatBytes(account.slots), ", boundaries ",
      FormatBytes(account.boundaries), ", workspace ",
      FormatBytes(account.workspace), "), copies ", FormatBytes(account.copies),
      ", records ", FormatBytes(account.records));
  if (account.overhead > 0) {
    absl::StrAppend(&text, ", the device's own ",
                    FormatBytes(account.overhead));
  }
  absl::StrAppend(&text, "; in all ", FormatBytes(account.total()));
  return text;
}

}  // namespace delink
