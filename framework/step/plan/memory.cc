#include "framework/step/plan/memory.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/optim/balance.h"
#include "framework/step/program/shape_table.h"

namespace delink {
namespace {

const PhasePlan& PlanOf(const LayerPlan& layer, Phase phase) {
  return At(layer.visits, phase);
}

void Grow(int64_t* size, int64_t to) { *size = std::max(*size, to); }

// Room for a layer's backward, or a half of it.
void SizeBackward(const LayerPlan& layer, const ProgramShape& shape,
                  const Instruction& at, StepMemory* m) {
  const bool first = at.op == Op::kBackwardInput;
  const bool second = at.op == Op::kBackwardWeight;
  const Phase phase = first    ? Phase::kBackwardInput
                      : second ? Phase::kBackwardWeight
                               : Phase::kBackward;
  Grow(&m->workspace, PlanOf(layer, phase).workspace_bytes);
  if (at.layer == 0 || at.op == Op::kLoss || second) return;
  const bool again = RunsAgain(at);
  const int64_t saved = PlanOf(layer, Phase::kRecord).slot_bytes;
  const int32_t pool = SlotClassOf(shape, at.layer);
  m->recompute = m->recompute || again;
  if (!again) {
    Grow(&At(m->pools, pool).bytes, m->boundary_bytes + saved);
  } else {
    Grow(&m->scratch_slot, m->boundary_bytes + (first ? 0 : saved));
  }
  if (first) {
    Grow(&At(m->held, pool).bytes,
         PlanOf(layer, phase).slot_bytes + (again ? saved : 0));
  }
}

int64_t ShardBytes(const ParamStore& store, int slab, int ranks) {
  return store.slab(slab).ShardElements(ranks) *
         SizeOf(store.dtype(slab, Plane::kGradient));
}

// What a kReduce stages.
int64_t LargestShard(const ParamStore& store, bool parts) {
  int64_t bytes = 0;
  for (size_t s = 0; s < store.slabs().size(); ++s) {
    const auto slab = static_cast<int>(s);
    const int ranks = GroupSize(store, slab);
    // The shard of a sharded gradient needs no staging, unless it is added.
    const PlacementRow& row = store.placement(slab);
    if (InTwoSteps(store, slab)) {
      Grow(&bytes, (store.local(slab).replicas + (parts ? 1 : 0)) *
                       ShardBytes(store, slab, ranks));
      continue;
    }
    if (row.gradient.sharded && row.owner == kNoOwner && !parts) continue;
    if (ranks > 1) Grow(&bytes, ShardBytes(store, slab, ranks));
  }
  return bytes;
}

// Whether some kReduce adds to a shard.
bool ReducesAgain(const Passes& passes) {
  for (const auto& [kind, pass] : passes) {
    const std::vector<Instruction>& list = pass.program.instructions;
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i].op == Op::kReduce &&
          Adds(pass.analysis, static_cast<int64_t>(i))) {
        return true;
      }
    }
  }
  return false;
}

// The same for a probe's reductions, over the ranks of one micro-batch.
int64_t LargestShardOf(const ParamStore& store, const Program& probe) {
  const ShapeTable table(probe.shape);
  int64_t bytes = 0;
  for (const Instruction& at : probe.instructions) {
    if (at.op != Op::kReduce) continue;
    const int ranks = table.StagesWith(at.slab) * table.VisitGroupSize(at.slab);
    Grow(&bytes, ShardBytes(store, SlabHere(store, at.slab), ranks));
  }
  return bytes;
}

// The same for what a probe first sums over the ranks of one visit.
int64_t LargestShardOfVisits(const ParamStore& store, const Program& probe) {
  const ShapeTable table(probe.shape);
  int64_t bytes = 0;
  for (const Instruction& at : probe.instructions) {
    if (at.op != Op::kProbe) continue;
    const int ranks = table.VisitGroupSize(at.slab);
    if (ranks == 1) continue;
    Grow(&bytes, ShardBytes(store, SlabHere(store, at.slab), ranks));
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

// Bytes of what biases move by: the layers' sums of two steps, and where they
// begin.
int64_t OfBiases(const StepMemory& memory) {
  if (memory.biases.empty()) return 0;
  int64_t bytes = 2 * AlignUp(memory.layer_sums * SizeOf(DType::kF64));
  for (const auto& [slab, layers] : memory.biases) {
    bytes += AlignUp(std::ssize(layers) * SizeOf(DType::kI64));
  }
  return bytes;
}

// Everything small that a step needs on the device; see Engine::Records.
int64_t RecordBytes(const StepMemory& memory) {
  const BatchShape& batch = memory.batch;
  const int64_t tokens = memory.micro_batches * batch.local_tokens();
  const int64_t samples = memory.micro_batches * batch.micro_batch;
  const int64_t by_token = memory.positions ? 3 : 2;
  int64_t of_context = 0;
  if (batch.context > 1) {
    of_context = AlignUp(batch.local_seq() * SizeOf(DType::kI32));
    if (batch.masked) {
      of_context +=
          AlignUp(memory.micro_batches * batch.tokens() * SizeOf(DType::kI32));
    }
  }
  return by_token * AlignUp(tokens * SizeOf(DType::kI32)) + of_context +
         AlignUp(samples * SizeOf(DType::kI64)) +
         AlignUp(memory.micro_batches * SizeOf(DType::kI64)) +
         AlignUp(memory.sums * SizeOf(DType::kF64)) + OfBiases(memory) +
         3 * kAlignment;
}

// By class of copies: as large as its largest slab on this rank.
std::vector<StepMemory::SlotPool> SizeFetched(const ParamStore& store,
                                              const Program& any) {
  std::vector<StepMemory::SlotPool> pools;
  for (const int32_t copies : any.shape.copies) {
    pools.push_back({.slots = copies});
  }
  const ShapeTable table(any.shape);
  for (const PlaneSet planes : kAllPlaneSets) {
    for (int32_t s = 0; s < any.shape.slabs; ++s) {
      const int32_t copy_class = CopyClassOf(any.shape, planes, s);
      if (copy_class < 0 || !table.IsHere(any.stage, s)) continue;
      int64_t bytes = 0;
      const bool whole = planes == PlaneSet::kWeight && IsSharded(any.shape, s);
      for (const Plane plane : PlanesOf(store, planes)) {
        const int slab = SlabHere(store, s);
        bytes += AlignUp(whole ? store.whole_bytes(slab, plane)
                               : store.bytes(slab, plane));
      }
      Grow(&At(pools, copy_class).bytes, bytes);
    }
  }
  return pools;
}

// By class of whole gradients: as large as its largest slab on this rank.
void SizeWholes(const ParamStore& store, const Passes& passes, StepMemory* m) {
  const Program& any = passes.begin()->second.program;
  m->wholes.resize(static_cast<size_t>(WholeClasses(any.shape)));
  const ShapeTable table(any.shape);
  for (int32_t s = 0; s < any.shape.slabs; ++s) {
    const int32_t whole_class = WholeClassOf(any.shape, s);
    if (whole_class < 0 || !table.IsHere(any.stage, s)) continue;
    Grow(&At(m->wholes, whole_class).bytes,
         AlignUp(WholeGradientBytes(store, SlabHere(store, s))));
  }
  for (const auto& [kind, pass] : passes) {
    for (size_t c = 0; c < m->wholes.size(); ++c) {
      Grow(&m->wholes[c].slots, pass.analysis.wholes[c]);
    }
  }
}

// The sums that the norm exchanges, and those that move biases.
void SizeSums(const ParamStore& store, const std::vector<LayerPlan>& layers,
              StepMemory* m) {
  for (const LayerPlan& layer : layers) {
    m->first_sums.push_back(m->layer_sums);
    m->layer_sums += layer.sums;
  }
  m->sums = store.layout().cells() + kTailSums + m->layer_sums;
  const std::vector<int>& visited = store.visited();
  for (size_t s = 0; s < store.slabs().size(); ++s) {
    const int slab = static_cast<int>(s);
    if (!HasBias(store, slab)) continue;
    for (const int layer : store.slab(slab).layers) {
      const auto at = std::ranges::lower_bound(visited, layer);
      m->biases[slab].push_back(
          At(m->first_sums, static_cast<size_t>(at - visited.begin())));
    }
  }
}

}  // namespace

std::vector<int32_t> SlotClasses(const std::vector<LayerPlan>& layers,
                                 const std::vector<bool>& recompute) {
  constexpr int64_t kInputAlone = -1;
  std::vector<int64_t> sizes;  // by class of blocks
  std::vector<int32_t> classes = {0};
  for (size_t l = 1; l + 1 < layers.size(); ++l) {
    const bool again = !recompute.empty() && At(recompute, l);
    const int64_t size =
        again ? kInputAlone : PlanOf(layers[l], Phase::kRecord).slot_bytes;
    const auto at = std::find(sizes.begin(), sizes.end(), size);
    classes.push_back(1 + static_cast<int32_t>(at - sizes.begin()));
    if (at == sizes.end()) sizes.push_back(size);
  }
  classes.push_back(1 + static_cast<int32_t>(sizes.size()));
  return classes;
}

StepMemory SizeStep(const ParamStore& store,
                    const std::vector<LayerPlan>& layers,
                    const BatchShape& batch, const Passes& passes) {
  DELINK_CHECK(!passes.empty());
  StepMemory m{.batch = batch};
  const Mesh& mesh = store.layout().mesh();
  m.batch.context = mesh.context;
  m.positions = batch.masked || mesh.tensor > 1 || mesh.context > 1;
  const DType dtype = store.options().dtype;
  m.boundary_bytes = AlignUp(layers.front().output.elements() * SizeOf(dtype));
  SizeSums(store, layers, &m);
  const Program& any = passes.begin()->second.program;
  const auto pool_of = [&](int32_t layer) -> StepMemory::SlotPool& {
    return At(m.pools, SlotClassOf(any.shape, layer));
  };
  m.pools.resize(passes.begin()->second.analysis.slots.size());
  m.held.resize(passes.begin()->second.analysis.held.size());
  m.stored.resize(passes.begin()->second.analysis.stored.size());
  // A slot for sending has only the input.
  if (any.shape.stages > 1) m.pools.back().bytes = m.boundary_bytes;
  for (int32_t l = 0; l < any.shape.layers; ++l) {
    if (StageOf(any.shape, l) != any.stage) continue;
    const LayerPlan& layer = At(layers, l);
    const int64_t saved = PlanOf(layer, Phase::kRecord).slot_bytes;
    for (const Phase phase : {Phase::kEval, Phase::kForward, Phase::kRecord}) {
      Grow(&m.workspace, PlanOf(layer, phase).workspace_bytes);
    }
    Grow(&pool_of(l).bytes, l > 0 ? m.boundary_bytes : saved);
    if (l + 1 == any.shape.layers) m.scratch_slot = saved;
  }
  int64_t apart = 0, with_apart = 0, of_visits = 0;  // bytes of gradients
  for (const auto& [kind, pass] : passes) {
    m.micro_batches =
        std::max(m.micro_batches, pass.program.shape.micro_batches);
    for (size_t p = 0; p < m.pools.size(); ++p) {
      Grow(&m.pools[p].slots, pass.analysis.slots[p]);
    }
    for (size_t p = 0; p < m.held.size(); ++p) {
      Grow(&m.held[p].slots, pass.analysis.held[p]);
    }
    for (size_t p = 0; p < m.stored.size(); ++p) {
      Grow(&m.stored[p].slots, pass.analysis.stored[p]);
    }
    Grow(&m.boundaries, pass.analysis.boundaries);
    if (kind == PassKind::kProbe) {
      with_apart = LargestShardOf(store, pass.program);
      of_visits = LargestShardOfVisits(store, pass.program);
    }
    for (const Instruction& at : pass.program.instructions) {
      if (!HasGradients(at) && !HasInputGradient(at)) continue;
      if ((at.flags & kApart) != 0) {
        Grow(&apart, PlaceApart(store, pass.program.shape, at.layer).bytes);
      }
      SizeBackward(At(layers, at.layer), pass.program.shape, at, &m);
    }
  }
  for (size_t p = 0; p < m.stored.size(); ++p) {
    m.stored[p].bytes = m.pools[p].bytes;
  }
  // A probe's reductions begin while it keeps other gradients apart.
  m.staging = apart;
  m.probe_staging = apart + AlignUp(with_apart);
  m.copies = std::max(AlignUp(LargestShard(store, ReducesAgain(passes))),
                      m.probe_staging + AlignUp(of_visits));
  SizeWholes(store, passes, &m);
  m.first_whole = m.copies;
  m.copies = m.WholeOffset(m.wholes.size());
  // Squares of gradients kept apart are summed in the visits' workspace.
  if (apart > 0) Grow(&m.workspace, LargestSums(store) - m.scratch_slot);
  m.records = RecordBytes(m);
  m.fetched = SizeFetched(store, any);
  return m;
}

std::vector<Plane> PlanesOf(const ParamStore& store, PlaneSet set) {
  if (IsOfWeights(set)) return {Plane::kWeight};
  if (set == PlaneSet::kGradient) return {Plane::kGradient};
  std::vector<Plane> planes;
  for (int p = static_cast<int>(Plane::kMaster); p < kPlanes; ++p) {
    const auto plane = static_cast<Plane>(p);
    if (store.has(plane)) planes.push_back(plane);
  }
  return planes;
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
    places.bytes += AlignUp(WholeGradientBytes(store, SlabHere(store, slab)));
  }
  return places;
}

bool InTwoSteps(const ParamStore& store, int slab) {
  const PlacementRow& row = store.placement(slab);
  return row.weight.sharded && row.owner == kNoOwner &&
         store.local(slab).replicas > 1;
}

int64_t WholeGradientBytes(const ParamStore& store, int slab) {
  return store.whole_bytes(slab, Plane::kGradient);
}

MemoryAccount AccountOf(const ParamStore& store, const StepMemory& memory) {
  return {.weights = store.bytes(Plane::kWeight),
          .gradients = store.bytes(Plane::kGradient),
          .state = store.state_bytes(),
          .slots = memory.slot_bytes(),
          .boundaries = memory.boundaries * memory.boundary_bytes,
          .workspace = memory.scratch_slot + memory.workspace,
          .copies = memory.copies,
          .fetched = memory.fetched_bytes(),
          .records = memory.records,
          .overhead = store.device().overhead(),
          .host = store.bytes(Plane::kWeight, Tier::kHost) +
                  store.bytes(Plane::kGradient, Tier::kHost) +
                  store.state_bytes(Tier::kHost) + memory.stored_bytes() +
                  memory.host_scratch};
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
  if (account.fetched > 0) {
    absl::StrAppend(&text, ", copies of planes that are kept elsewhere ",
                    FormatBytes(account.fetched));
  }
  if (account.overhead > 0) {
    absl::StrAppend(&text, ", the device's own ",
                    FormatBytes(account.overhead));
  }
  absl::StrAppend(&text, "; in all ", FormatBytes(account.total()));
  if (account.host > 0) {
    absl::StrAppend(&text, ", and of the host ", FormatBytes(account.host));
  }
  return text;
}

}  // namespace delink
