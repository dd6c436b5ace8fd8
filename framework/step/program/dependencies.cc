#include "framework/step/program/dependencies.h"

#include <algorithm>
#include <array>

#include "framework/base/check.h"
#include "framework/step/program/slot_scan.h"

namespace delink {
namespace {

constexpr int32_t kNone = -1;

using ByLane = std::array<int32_t, kLanes>;

// Whether the visit's gradient of the slab is kept apart from the slab's.
bool IsApart(const ProgramShape& shape, const Instruction& visit,
             int32_t slab) {
  if ((visit.flags & kApart) == 0) return false;
  const std::vector<int32_t> shared = SharedSlabsOf(shape, visit.layer);
  return std::find(shared.begin(), shared.end(), slab) != shared.end();
}

// The home of a slab's planes, and their copy.
Resource HomeOf(PlaneSet planes, int32_t slab) {
  constexpr ResourceKind kHomes[] = {
      ResourceKind::kWeight, ResourceKind::kGradient, ResourceKind::kState,
      ResourceKind::kWeight};
  return {kHomes[static_cast<size_t>(planes)], slab};
}
Resource CopyOf(PlaneSet planes, int32_t slab) {
  constexpr ResourceKind kCopies[] = {
      ResourceKind::kWeightCopy, ResourceKind::kGradientCopy,
      ResourceKind::kStateCopy, ResourceKind::kUpdatedCopy};
  return {kCopies[static_cast<size_t>(planes)], slab};
}

// Which copy has them.
Resource WhereIs(PlaneSet planes, int32_t slab) {
  constexpr ResourceKind kWheres[] = {
      ResourceKind::kWeightAt, ResourceKind::kGradientAt,
      ResourceKind::kStateAt, ResourceKind::kWeightAt};
  return {kWheres[static_cast<size_t>(planes)], slab};
}

Effects EffectsOnPlanes(const ProgramShape& shape, const Instruction& at) {
  Effects effects;
  for (const PlaneUse& use : PlanesUsed(shape, at)) {
    const bool home = CopyClassOf(shape, use.planes, use.slab) < 0;
    (use.writes ? effects.writes : effects.reads)
        .push_back(home ? HomeOf(use.planes, use.slab)
                        : CopyOf(use.planes, use.slab));
  }
  for (const int32_t slab : WholesUsed(shape, at)) {
    effects.writes.push_back({ResourceKind::kWhole, slab});
  }
  return effects;
}

// Effects of instructions that move planes between their home and a copy. The
// resource of the copy orders its users after its arrival and before its
// release. The slab's next arrival may take another copy; WhereIs orders it
// after the release too.
Effects MoveEffects(const Instruction& at) {
  const Resource home = HomeOf(PlaneSetOf(at), at.slab);
  const Resource copy = CopyOf(PlaneSetOf(at), at.slab);
  const Resource where = WhereIs(PlaneSetOf(at), at.slab);
  if (at.op == Op::kEvict) return {.reads = {copy}, .writes = {home}};
  if (at.op == Op::kFetch) return {.reads = {home}, .writes = {copy, where}};
  return {.writes = {copy, where}};
}

// Each half of a backward reads what both need, because it makes values again
// from the input and the weights.
void VisitEffects(const ProgramShape& shape, const Instruction& visit,
                  Effects* effects) {
  const int32_t layer = visit.layer;
  const int32_t m = visit.micro_batch;
  if (visit.op == Op::kForward) {
    effects->writes.push_back({ResourceKind::kSlot, layer, m});
    effects->writes.push_back({ResourceKind::kSlot, layer + 1, m});
    return;
  }
  effects->reads.push_back({ResourceKind::kSlot, layer, m});
  if (visit.op == Op::kLoss) effects->writes.push_back({ResourceKind::kLoss});
  const Resource held{ResourceKind::kHeld, layer, m};
  if (visit.op == Op::kBackwardInput) effects->writes.push_back(held);
  if (visit.op == Op::kBackwardWeight) effects->reads.push_back(held);
  if (HasGradients(visit) && (visit.flags & kApart) != 0) {
    effects->writes.push_back({ResourceKind::kApart});
  }
  if (HasInputGradient(visit)) {
    effects->writes.push_back(
        {ResourceKind::kBoundary, ChunkOf(shape, layer), m});
  }
}

// A layer's input is sent from slot to slot, its gradient from the boundary of
// the layer's chunk to that of the chunk before.
Effects TransferEffects(const ProgramShape& shape, const Instruction& i) {
  const bool sends = i.op == Op::kSend;
  Resource moved{ResourceKind::kSlot, i.layer, i.micro_batch};
  if ((i.flags & kOfGradient) != 0) {
    moved.kind = ResourceKind::kBoundary;
    moved.index = ChunkOf(shape, sends ? i.layer : i.layer - 1);
  }
  if (sends) return {.reads = {moved}};
  return {.writes = {moved}};
}

// Effects of copying a slot to the host, or back.
Effects StoreEffects(const Instruction& i) {
  const Resource slot{ResourceKind::kSlot, i.layer, i.micro_batch};
  const Resource stored{ResourceKind::kStored, i.layer, i.micro_batch};
  const bool goes = i.op == Op::kStoreSlot;
  return {.reads = {goes ? slot : stored}, .writes = {goes ? stored : slot}};
}

// What an update touches beside the planes on which the device works.
void UpdateEffects(const ProgramShape& shape, int32_t slab, Effects* effects) {
  effects->reads.push_back({ResourceKind::kNorm});
  if (!HostUpdates(shape, slab)) {
    // The weights must be the shard again.
    if (IsSharded(shape, slab)) {
      effects->reads.push_back({ResourceKind::kWeightAt, slab});
    }
    return;
  }
  effects->reads.push_back({ResourceKind::kGradient, slab});
  // The planes must be at home.
  effects->reads.push_back({ResourceKind::kGradientAt, slab});
  effects->reads.push_back({ResourceKind::kWeightAt, slab});
  effects->writes = {{ResourceKind::kWeight, slab},
                     {ResourceKind::kState, slab}};
}

// Hazards over two consecutive steps. Positions run from 0 to 2n; those under n
// are the step before. Completion is tracked with one clock per lane: lanes are
// in order, so "everything in lane k up to position c" describes it completely,
// and an instruction has at most one dependency per lane.
class HazardScan {
 public:
  HazardScan(const Program& program, Analysis* analysis)
      : program_(program),
        count_(static_cast<int32_t>(program.instructions.size())),
        out_(*analysis) {
    const ProgramShape& shape = program.shape;
    int32_t next = 4 * shape.slabs;
    for (const int32_t slots : out_.slots) {
      pool_base_.push_back(next);
      next += slots;
    }
    for (const int32_t held : out_.held) {
      held_base_.push_back(next);
      next += held;
    }
    for (const int32_t stored : out_.stored) {
      stored_base_.push_back(next);
      next += stored;
    }
    for (const int32_t copies : shape.copies) {
      copy_base_.push_back(next);
      next += copies;
    }
    for (const int32_t wholes : out_.wholes) {
      whole_base_.push_back(next);
      next += wholes;
    }
    where_base_ = next;
    if (!shape.copies.empty()) next += kPlaneSets * shape.slabs;
    copy_at_.fill(std::vector<int32_t>(shape.slabs, kNone));
    boundary_base_ = next;
    const int32_t norm = boundary_base_ + out_.boundaries;
    accesses_.resize(norm + 4);
    clocks_.resize(size_t{2} * count_);
    lane_end_.fill(kNone);
    out_.dependencies.resize(count_);
  }

  void Run() {
    std::vector<Effects> effects;
    effects.reserve(count_);
    for (const Instruction& instruction : program_.instructions) {
      effects.push_back(EffectsOf(program_.shape, instruction));
    }
    for (int32_t position = 0; position < 2 * count_; ++position) {
      Step(position, effects[position % count_]);
    }
  }

 private:
  struct Access {
    Access() { readers.fill(kNone); }
    int32_t writer = kNone;
    ByLane readers;  // since the last write, the last of each lane
  };

  int LaneOf(int32_t position) const {
    return static_cast<int>(program_.instructions[position % count_].lane);
  }

  // The memory behind a resource: hazards are between slots, not visits.
  int32_t IdOf(const Resource& r) const {
    const ProgramShape& shape = program_.shape;
    switch (r.kind) {
      case ResourceKind::kWeight:
        return r.index;
      case ResourceKind::kWeightCopy:
        return CopyAt(PlaneSet::kWeight, r.index);
      case ResourceKind::kGradientCopy:
        return CopyAt(PlaneSet::kGradient, r.index);
      case ResourceKind::kStateCopy:
        return CopyAt(PlaneSet::kState, r.index);
      case ResourceKind::kUpdatedCopy:
        return CopyAt(PlaneSet::kUpdated, r.index);
      case ResourceKind::kWeightAt:
        return where_base_ + r.index;
      case ResourceKind::kGradientAt:
        return where_base_ + shape.slabs + r.index;
      case ResourceKind::kStateAt:
        return where_base_ + 2 * shape.slabs + r.index;
      case ResourceKind::kGradient:
        return shape.slabs + r.index;
      case ResourceKind::kState:
        return 2 * shape.slabs + r.index;
      case ResourceKind::kWhole:
        // No instruction of an evaluation writes it.
        if (out_.whole_of[r.index] < 0) return shape.slabs + r.index;
        return whole_base_[WholeClassOf(shape, r.index)] +
               out_.whole_of[r.index];
      case ResourceKind::kSquares:
        return 3 * shape.slabs + r.index;
      case ResourceKind::kSlot:
        return pool_base_[out_.pool_of[r.index]] +
               out_.slot_of[r.index][r.micro_batch];
      case ResourceKind::kHeld:
        return held_base_[SlotClassOf(shape, r.index)] +
               out_.held_of[r.index][r.micro_batch];
      case ResourceKind::kStored:
        return stored_base_[SlotClassOf(shape, r.index)] +
               out_.stored_of[r.index][r.micro_batch];
      case ResourceKind::kBoundary:
        return boundary_base_ + out_.boundary_of[r.index][r.micro_batch];
      case ResourceKind::kNorm:
        return boundary_base_ + out_.boundaries;
      case ResourceKind::kLoss:
        return boundary_base_ + out_.boundaries + 1;
      case ResourceKind::kFound:
        return boundary_base_ + out_.boundaries + 2;
      case ResourceKind::kApart:
        return boundary_base_ + out_.boundaries + 3;
      case ResourceKind::kScratch:
        break;
    }
    DELINK_CHECK(false) << "scratch belongs to its lane and has no hazards";
    return kNone;
  }

  int32_t CopyAt(PlaneSet planes, int32_t slab) const {
    return copy_base_[CopyClassOf(program_.shape, planes, slab)] +
           copy_at_[static_cast<size_t>(planes)][slab];
  }

  void WaitFor(int32_t position, ByLane* latest) const {
    if (position == kNone) return;
    int32_t& entry = (*latest)[LaneOf(position)];
    entry = std::max(entry, position);
  }

  // The last instruction of each lane that `effects` must wait for.
  ByLane Hazards(const Effects& effects) const {
    ByLane latest;
    latest.fill(kNone);
    for (const Resource& r : effects.reads) {
      WaitFor(accesses_[IdOf(r)].writer, &latest);
    }
    for (const Resource& r : effects.writes) {
      const Access& access = accesses_[IdOf(r)];
      WaitFor(access.writer, &latest);
      for (const int32_t reader : access.readers) WaitFor(reader, &latest);
    }
    return latest;
  }

  // What is complete once `position` is.
  ByLane CompleteAfter(int32_t position) const {
    ByLane clock = clocks_[position];
    clock[LaneOf(position)] = position;
    return clock;
  }

  void Step(int32_t position, const Effects& effects) {
    const int own = LaneOf(position);
    const Instruction& at = program_.instructions[position % count_];
    if (at.op == Op::kFetch || at.op == Op::kTake) {
      copy_at_[static_cast<size_t>(PlaneSetOf(at))][at.slab] =
          out_.copies_of[position % count_].front();
    }
    const ByLane hazards = Hazards(effects);
    ByLane implied;  // by lane order and by the hazards' own dependencies
    implied.fill(kNone);
    const auto merge = [](const ByLane& from, ByLane* into) {
      for (int k = 0; k < kLanes; ++k) {
        (*into)[k] = std::max((*into)[k], from[k]);
      }
    };
    if (lane_end_[own] != kNone) merge(CompleteAfter(lane_end_[own]), &implied);
    for (const int32_t h : hazards) {
      if (h != kNone) merge(clocks_[h], &implied);
    }
    std::vector<int32_t> kept;
    for (int k = 0; k < kLanes; ++k) {
      if (k != own && hazards[k] > implied[k]) kept.push_back(hazards[k]);
    }
    clocks_[position] = implied;
    merge(hazards, &clocks_[position]);
    if (position >= count_) {
      std::sort(kept.begin(), kept.end());
      for (const int32_t h : kept) {
        out_.dependencies[position - count_].push_back(
            {.instruction = h % count_, .previous_step = h < count_});
      }
    }
    lane_end_[own] = position;
    Record(position, own, effects);
  }

  void Record(int32_t position, int own, const Effects& effects) {
    for (const Resource& r : effects.reads) {
      accesses_[IdOf(r)].readers[own] = position;
    }
    for (const Resource& r : effects.writes) {
      Access& access = accesses_[IdOf(r)];
      access.readers.fill(kNone);
      access.writer = position;
    }
  }

  const Program& program_;
  const int32_t count_;
  Analysis& out_;
  std::vector<int32_t> pool_base_, held_base_, stored_base_;
  std::vector<int32_t> copy_base_, whole_base_;  // by class
  // By set of planes and slab: the one taken last.
  std::array<std::vector<int32_t>, kPlaneSets> copy_at_;
  int32_t where_base_ = 0, boundary_base_ = 0;
  std::vector<Access> accesses_;
  // By position: the last position of each lane that is complete before it.
  std::vector<ByLane> clocks_;
  ByLane lane_end_;
};

void FindFirstWrites(const Program& program, Analysis* analysis) {
  std::vector<bool> holds(program.shape.slabs, false), reduced = holds,
                                                       empty = holds;
  analysis->cleared.resize(program.instructions.size());
  analysis->written.resize(program.instructions.size());
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& at = program.instructions[i];
    const auto write = [&](int32_t slab) {
      analysis->written[i].push_back(holds[slab]);
      holds[slab] = true;
    };
    if (at.op == Op::kProbe) write(at.slab);
    if (at.op == Op::kReduce && ReducesParts(program.shape, at.slab)) {
      analysis->written[i].push_back(reduced[at.slab]);
      reduced[at.slab] = empty[at.slab] = true;
    }
    if (!HasGradients(at)) continue;
    for (const int32_t slab : program.shape.slabs_of_layer[at.layer]) {
      if (IsApart(program.shape, at, slab)) {
        analysis->written[i].push_back(false);
      } else {
        write(slab);
      }
      if (!empty[slab]) continue;
      analysis->cleared[i].push_back(slab);
      empty[slab] = false;
    }
  }
}

}  // namespace

std::vector<PlaneUse> PlanesUsed(const ProgramShape& shape,
                                 const Instruction& instruction) {
  std::vector<PlaneUse> uses;
  const int32_t slab = instruction.slab;
  switch (instruction.op) {
    case Op::kProbe:
      if (WholeClassOf(shape, slab) >= 0) return {};
      return {{PlaneSet::kGradient, slab, true}};
    case Op::kReduce:
      return {{PlaneSet::kGradient, slab, true}};
    case Op::kSquares:
      return {{PlaneSet::kGradient, slab}};
    case Op::kUpdate:
      if (HostUpdates(shape, slab)) return {};
      return {{PlaneSet::kGradient, slab},
              {UpdatedSet(shape, slab), slab, true},
              {PlaneSet::kState, slab, true}};
    case Op::kGather:
      if (HostUpdates(shape, slab)) return {};
      return {{UpdatedSet(shape, slab), slab, true}};
    default:
      break;
  }
  if (!IsVisit(instruction)) return uses;
  const std::vector<int32_t>& slabs = shape.slabs_of_layer[instruction.layer];
  for (const int32_t s : slabs) uses.push_back({PlaneSet::kWeight, s});
  if (!HasGradients(instruction)) return uses;
  for (const int32_t s : slabs) {
    if (IsApart(shape, instruction, s) || WholeClassOf(shape, s) >= 0) continue;
    uses.push_back({PlaneSet::kGradient, s, true});
  }
  return uses;
}

std::vector<int32_t> WholesUsed(const ProgramShape& shape,
                                const Instruction& instruction) {
  std::vector<int32_t> slabs;
  if (shape.whole_class.empty()) return slabs;
  if (instruction.op == Op::kReduce || instruction.op == Op::kProbe) {
    slabs = {instruction.slab};
  } else if (HasGradients(instruction)) {
    slabs = shape.slabs_of_layer[instruction.layer];
  }
  std::erase_if(slabs, [&](int32_t s) {
    return WholeClassOf(shape, s) < 0 || IsApart(shape, instruction, s);
  });
  return slabs;
}

Effects EffectsOf(const ProgramShape& shape, const Instruction& instruction) {
  Effects effects = EffectsOnPlanes(shape, instruction);
  const int32_t slab = instruction.slab;
  switch (instruction.op) {
    case Op::kForward:
    case Op::kLoss:
    case Op::kBackward:
    case Op::kBackwardInput:
    case Op::kBackwardWeight:
      VisitEffects(shape, instruction, &effects);
      return effects;
    case Op::kSend:
    case Op::kRecv:
      return TransferEffects(shape, instruction);
    case Op::kFetch:
    case Op::kTake:
    case Op::kEvict:
    case Op::kRelease:
      return MoveEffects(instruction);
    case Op::kStoreSlot:
    case Op::kLoadSlot:
      return StoreEffects(instruction);
    case Op::kReduce:
      return effects;
    case Op::kGather:
      if (HostUpdates(shape, slab)) {
        effects.reads = {{ResourceKind::kWeightAt, slab}};
        effects.writes = {{ResourceKind::kWeight, slab}};
      }
      return effects;
    case Op::kSquares:
      effects.writes = {{ResourceKind::kSquares, slab}};
      return effects;
    case Op::kNorm:
      effects.reads = {{ResourceKind::kLoss}};
      // The sums over all ranks replace them.
      for (int32_t s = 0; s < shape.slabs; ++s) {
        effects.writes.push_back({ResourceKind::kSquares, s});
      }
      effects.writes.push_back({ResourceKind::kNorm});
      return effects;
    case Op::kUpdate:
      UpdateEffects(shape, slab, &effects);
      return effects;
    case Op::kSave:
      effects.reads = {{ResourceKind::kWeight, slab},
                       {ResourceKind::kState, slab}};
      return effects;
    case Op::kInspect:
      effects.reads = {{ResourceKind::kSlot, instruction.layer + 1,
                        instruction.micro_batch}};
      effects.writes = {{ResourceKind::kFound}};
      return effects;
    case Op::kProbe:
      effects.reads = {{ResourceKind::kApart}};
      effects.writes.push_back({ResourceKind::kFound});
      return effects;
    case Op::kSum:
      effects.reads = {{ResourceKind::kLoss}};
      for (int32_t s = 0; s < shape.slabs; ++s) {
        effects.reads.push_back({WholeClassOf(shape, s) < 0
                                     ? ResourceKind::kGradient
                                     : ResourceKind::kWhole,
                                 s});
      }
      effects.writes = {{ResourceKind::kFound}};
      return effects;
  }
  return effects;
}

Analysis AnalyzeProgram(const Program& program) {
  Analysis analysis;
  ScanSlots(program, &analysis);
  HazardScan(program, &analysis).Run();
  FindFirstWrites(program, &analysis);
  return analysis;
}

}  // namespace delink
