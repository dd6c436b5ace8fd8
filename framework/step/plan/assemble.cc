#include "framework/step/plan/assemble.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "framework/base/check.h"
#include "framework/step/program/shape_table.h"

namespace delink {
namespace {

// Writes the program of one pass on one stage.
class Assembler {
 public:
  Assembler(PassKind kind, const ProgramShape& shape, int32_t stage,
            bool recompute)
      : program_{.shape = shape, .kind = kind, .stage = stage},
        shape_(program_.shape),
        table_(shape),
        last_(shape.layers - 1),
        recompute_(recompute),
        forward_only_(kind == PassKind::kEvaluation ||
                      kind == PassKind::kDiagnosis) {
    if (kind == PassKind::kProbe) program_.shape.micro_batches = 1;
    DELINK_CHECK_GE(shape.layers, 2);
    DELINK_CHECK_GE(shape.micro_batches, 1);
    DELINK_CHECK_EQ(shape.gathers.size(), size_t(shape.slabs));
  }

  Program Run(const std::vector<Unit>& units) {
    if (!units.empty()) Receive(units.front());
    for (size_t i = 0; i < units.size(); ++i) {
      if (i + 1 < units.size()) Receive(units[i + 1]);
      AddVisits(units[i]);
    }
    if (program_.kind == PassKind::kStep ||
        program_.kind == PassKind::kGradients) {
      AddReductions();
      Add({.op = Op::kNorm});
    } else {
      if (program_.kind == PassKind::kProbe) AddReductionsOfProbe();
      Add({.op = Op::kSum});
    }
    if (program_.kind == PassKind::kStep) AddUpdates();
    return std::move(program_);
  }

 private:
  void Add(Instruction instruction) {
    instruction.lane = table_.LaneOf(instruction);
    program_.instructions.push_back(instruction);
  }
  void AddEach(const Unit& unit, Op op, int32_t layer, uint8_t flags) {
    for (int32_t m = unit.micro_batch; m < unit.micro_batch + unit.count; ++m) {
      Add({.op = op, .flags = flags, .layer = layer, .micro_batch = m});
      if (op == Op::kForward && program_.kind == PassKind::kDiagnosis) {
        Add({.op = Op::kInspect, .layer = layer, .micro_batch = m});
      }
      if (op == Op::kBackward && program_.kind == PassKind::kProbe) {
        AddProbes(layer, m);
      }
    }
  }

  // The layers of a chunk: [begin, end).
  int32_t BeginOf(int32_t chunk) const {
    int32_t layer = 0;
    while (ChunkOf(shape_, layer) < chunk) ++layer;
    return layer;
  }
  int32_t EndOf(int32_t chunk) const {
    int32_t layer = shape_.layers;
    while (ChunkOf(shape_, layer - 1) > chunk) --layer;
    return layer;
  }

  void Receive(const Unit& unit) {
    const int32_t end = EndOf(unit.chunk);
    if (unit.op == Op::kForward) {
      if (unit.chunk > 0) AddEach(unit, Op::kRecv, BeginOf(unit.chunk), 0);
    } else if (unit.op != Op::kBackwardWeight && end < shape_.layers) {
      AddEach(unit, Op::kRecv, end, kOfGradient);
    }
  }

  uint8_t FlagsOf(int32_t layer) const {
    if (forward_only_) return kForwardOnly;
    return recompute_ && layer > 0 && layer < last_ ? kRecompute : 0;
  }

  void AddBackwards(const Unit& unit) {
    const int32_t begin = BeginOf(unit.chunk), end = EndOf(unit.chunk);
    const bool second = unit.op == Op::kBackwardWeight;
    for (int32_t layer = std::min(end, last_) - 1; layer >= begin; --layer) {
      if (second && layer == 0) continue;
      AddEach(unit, layer == 0 ? Op::kBackward : unit.op, layer,
              second ? 0 : FlagsOf(layer));
    }
    if (begin > 0 && !second) AddEach(unit, Op::kSend, begin, kOfGradient);
  }

  void AddVisits(const Unit& unit) {
    if (unit.op != Op::kForward) return AddBackwards(unit);
    const int32_t begin = BeginOf(unit.chunk), end = EndOf(unit.chunk);
    for (int32_t layer = begin; layer < std::min(end, last_); ++layer) {
      AddEach(unit, Op::kForward, layer, FlagsOf(layer));
    }
    if (end > last_) {
      AddEach(unit, Op::kLoss, last_, FlagsOf(last_));
    } else {
      AddEach(unit, Op::kSend, end, 0);
    }
  }

  // Of a kBackward that was just added.
  void AddProbes(int32_t layer, int32_t m) {
    const std::vector<int32_t> shared = SharedSlabsOf(shape_, layer);
    if (!shared.empty()) program_.instructions.back().flags |= kApart;
    for (const int32_t slab : shared) {
      Add({.op = Op::kProbe, .layer = layer, .slab = slab, .micro_batch = m});
    }
  }

  void AddReductionsOfProbe() {
    for (int32_t slab = 0; slab < shape_.slabs; ++slab) {
      if (!table_.IsReducedByProbe(slab)) continue;
      if (!table_.IsHere(program_.stage, slab)) continue;
      Add({.op = Op::kReduce, .slab = slab});
    }
  }

  bool IsOfSeveralStages(int32_t slab) const {
    return table_.StagesWith(slab) > 1;
  }

  // By visit: slabs of which it completes a micro-batch's part, but not all.
  std::vector<std::vector<int32_t>> FindParts(
      const std::vector<Instruction>& visits) const {
    std::vector<std::vector<int32_t>> parts(visits.size());
    if (!shape_.reduces_parts) return parts;
    std::set<std::pair<int32_t, int32_t>> seen;  // slab, micro-batch: later
    std::set<int32_t> later;                     // slabs
    for (size_t i = visits.size(); i-- > 0;) {
      if (!HasGradients(visits[i])) continue;
      for (const int32_t slab : shape_.slabs_of_layer[visits[i].layer]) {
        const bool ends = seen.emplace(slab, visits[i].micro_batch).second;
        const bool last = later.insert(slab).second;
        if (last || !ends || IsOfSeveralStages(slab)) continue;
        if (ReducesParts(shape_, slab)) parts[i].push_back(slab);
      }
    }
    return parts;
  }

  void AddReductions() {
    std::vector<Instruction> visits = std::move(program_.instructions);
    program_.instructions.clear();
    std::vector<int32_t> last_contribution(shape_.slabs, -1);
    for (size_t i = 0; i < visits.size(); ++i) {
      if (!HasGradients(visits[i])) continue;
      for (const int32_t slab : shape_.slabs_of_layer[visits[i].layer]) {
        last_contribution[slab] = static_cast<int32_t>(i);
      }
    }
    const std::vector<std::vector<int32_t>> parts = FindParts(visits);
    // Slabs whose kSquares waits: until the next is complete, or for the end.
    std::vector<int32_t> leaving, late;
    const auto reduce = [&](int32_t slab) {
      Add({.op = Op::kReduce, .slab = slab});
      const bool network = program_.instructions.back().lane == Lane::kNetwork;
      if (!network) return Add({.op = Op::kSquares, .slab = slab});
      const bool leaves = CopyClassOf(shape_, PlaneSet::kGradient, slab) >= 0;
      (leaves ? leaving : late).push_back(slab);
    };
    for (size_t i = 0; i < visits.size(); ++i) {
      Add(visits[i]);
      if (!HasGradients(visits[i])) continue;
      std::vector<int32_t> complete;
      for (const int32_t slab : shape_.slabs_of_layer[visits[i].layer]) {
        const bool last = last_contribution[slab] == static_cast<int32_t>(i);
        if (last && !IsOfSeveralStages(slab)) complete.push_back(slab);
      }
      for (const int32_t slab : parts[i]) {
        Add({.op = Op::kReduce, .slab = slab});
      }
      if (!complete.empty()) AddSquares(&leaving);
      for (const int32_t slab : complete) reduce(slab);
    }
    for (int32_t slab = 0; slab < shape_.slabs; ++slab) {
      if (last_contribution[slab] >= 0 && IsOfSeveralStages(slab)) reduce(slab);
    }
    AddSquares(&leaving);
    AddSquares(&late);
  }

  void AddSquares(std::vector<int32_t>* slabs) {
    for (const int32_t slab : *slabs) Add({.op = Op::kSquares, .slab = slab});
    slabs->clear();
  }

  void AddUpdates() {
    std::vector<int32_t> several, own;
    std::vector<bool> seen(shape_.slabs, false);
    for (int32_t layer = 0; layer <= last_; ++layer) {
      if (StageOf(shape_, layer) != program_.stage) continue;
      for (const int32_t slab : shape_.slabs_of_layer[layer]) {
        if (seen[slab]) continue;
        seen[slab] = true;
        (IsOfSeveralStages(slab) ? several : own).push_back(slab);
      }
    }
    std::sort(several.begin(), several.end());
    several.insert(several.end(), own.begin(), own.end());
    for (const int32_t slab : several) {
      Add({.op = Op::kUpdate, .slab = slab});
      if (shape_.gathers[slab]) Add({.op = Op::kGather, .slab = slab});
    }
  }

  Program program_;
  const ProgramShape& shape_;  // its own
  const ShapeTable table_;
  const int32_t last_;
  const bool recompute_;
  const bool forward_only_;
};

// The units of a pass, from those of a step.
std::vector<Unit> UnitsOf(PassKind kind, const ProgramShape& shape,
                          int32_t stage, const StageSchedule& schedule) {
  std::vector<Unit> units;
  if (kind == PassKind::kProbe) {
    const int32_t chunks = ChunkOf(shape, shape.layers - 1) + 1;
    for (int32_t c = stage; c < chunks; c += shape.stages) {
      units.push_back({.chunk = c});
    }
    for (size_t forwards = units.size(); forwards > 0; --forwards) {
      units.push_back(
          {.op = Op::kBackward, .chunk = units[forwards - 1].chunk});
    }
    return units;
  }
  const std::vector<Unit> of_step = schedule(shape, stage);
  if (kind == PassKind::kStep || kind == PassKind::kGradients) return of_step;
  for (const Unit& unit : of_step) {
    for (int32_t k = 0; k < unit.count && unit.op == Op::kForward; ++k) {
      units.push_back(
          {.chunk = unit.chunk, .micro_batch = unit.micro_batch + k});
    }
  }
  return units;
}

}  // namespace

Planner PlannerOf(StageSchedule schedule, bool recompute) {
  return [schedule = std::move(schedule), recompute](
             PassKind kind, const ProgramShape& shape, int32_t stage) {
    return Assembler(kind, shape, stage, recompute)
        .Run(UnitsOf(kind, shape, stage, schedule));
  };
}

}  // namespace delink
