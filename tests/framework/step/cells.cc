#include "tests/framework/step/cells.h"

#include <algorithm>

namespace delink::step_test {

Cells::Cells(const Program& program, const Analysis& a)
    : slabs(program.shape.slabs) {
  norm = 4 * slabs;
  loss = norm + 1;
  found = loss + 1;
  apart = found + 1;
  boundaries = apart + 1;
  cells = boundaries + a.boundaries;
  std::vector<int32_t> pools;
  for (const int32_t slots : a.slots) {
    pools.push_back(cells);
    cells += slots;
  }
  std::vector<int32_t> held;
  for (const int32_t count : a.held) {
    held.push_back(cells);
    cells += count;
  }
  std::vector<int32_t> stored;
  for (const int32_t count : a.stored) {
    stored.push_back(cells);
    cells += count;
  }
  const int32_t layers = program.shape.layers;
  for (int32_t layer = 0; layer < layers; ++layer) {
    const std::vector<int32_t>& classes = program.shape.slot_class;
    const int32_t ends = layer == 0 ? 0 : layer + 1 == layers ? 2 : 1;
    const size_t own = classes.empty() ? ends : classes[layer];
    const bool here = StageAt(program.shape, layer) == program.stage;
    pool_of_layer.push_back(here ? pools.at(own) : pools.back());
    held_of_layer.push_back(held.at(own));
    stored_of_layer.push_back(stored.at(own));
    const std::vector<int32_t>& chunks = program.shape.chunk_of_layer;
    chunk_of_layer.push_back(chunks.empty() ? 0 : chunks[layer]);
  }
  for (const int32_t count : program.shape.copies) {
    copies.push_back(cells);
    cells += count;
  }
  where = cells;
  cells += 3 * slabs;
  for (const int32_t count : a.wholes) {
    wholes.push_back(cells);
    cells += count;
  }
}

bool HasWhole(const ProgramShape& shape, int32_t slab) {
  return !shape.whole_class.empty() && shape.whole_class[slab] >= 0;
}

bool HasShard(const ProgramShape& shape, int32_t slab) {
  return !shape.shards.empty() && shape.shards[slab];
}

bool GathersAt(const ProgramShape& shape, const Instruction& i) {
  return i.op == Op::kFetch && PlaneSetOf(i) == PlaneSet::kWeight &&
         HasShard(shape, i.slab);
}

int32_t StageAt(const ProgramShape& shape, int32_t layer) {
  if (shape.chunk_of_layer.empty()) return 0;
  return shape.chunk_of_layer[layer] % shape.stages;
}

int32_t Cells::Place(const Program& program, const Analysis& a, PlaneSet planes,
                     int32_t slab, int32_t index) const {
  const auto& classes = program.shape.copy_class[static_cast<size_t>(planes)];
  if (classes.empty() || classes[slab] < 0) return Home(planes, slab);
  const Instruction& i = program.instructions[index];
  const std::vector<Work> work = WorkOf(program.shape, i);
  size_t k = 0;  // what it says of itself
  while (!work.empty() && (work[k].planes != planes || work[k].slab != slab)) {
    ++k;
  }
  return copies[classes[slab]] + a.copies_of[index].at(k);
}

PlaneSet WrittenAt(const ProgramShape& shape, int32_t slab) {
  const auto& updated =
      shape.copy_class[static_cast<size_t>(PlaneSet::kUpdated)];
  const bool apart =
      HasShard(shape, slab) || (!updated.empty() && updated[slab] >= 0);
  return apart ? PlaneSet::kUpdated : PlaneSet::kWeight;
}

std::vector<Work> WorkOf(const ProgramShape& shape, const Instruction& i) {
  const bool host =
      i.slab >= 0 && !shape.host_updates.empty() && shape.host_updates[i.slab];
  std::vector<Work> work;
  switch (i.op) {
    case Op::kUpdate:
      if (host) return {};
      return {{PlaneSet::kGradient, i.slab, false},
              {WrittenAt(shape, i.slab), i.slab, true},
              {PlaneSet::kState, i.slab, true}};
    case Op::kGather:
      if (host) return {};
      return {{WrittenAt(shape, i.slab), i.slab, true}};
    case Op::kProbe:
      if (HasWhole(shape, i.slab)) return {};
      return {{PlaneSet::kGradient, i.slab, true}};
    case Op::kReduce:
      return {{PlaneSet::kGradient, i.slab, true}};
    case Op::kSquares:
      return {{PlaneSet::kGradient, i.slab, false}};
    case Op::kForward:
    case Op::kLoss:
    case Op::kBackward:
    case Op::kBackwardInput:
    case Op::kBackwardWeight:
      break;
    default:
      return {};
  }
  for (const int32_t slab : shape.slabs_of_layer[i.layer]) {
    work.push_back({PlaneSet::kWeight, slab, false});
  }
  for (const int32_t slab : shape.slabs_of_layer[i.layer]) {
    if (!TrainsAt(i) || KeepsApart(shape, i, slab)) continue;
    if (HasWhole(shape, slab)) continue;
    work.push_back({PlaneSet::kGradient, slab, true});
  }
  return work;
}

int32_t Cells::Boundary(const Analysis& a, int32_t layer, int32_t m) const {
  return boundaries + a.boundary_of[chunk_of_layer[layer]][m];
}

int32_t Cells::Slot(const Analysis& a, int32_t layer, int32_t m) const {
  return pool_of_layer[layer] + a.slot_of[layer][m];
}

int32_t Cells::Held(const Analysis& a, int32_t layer, int32_t m) const {
  return held_of_layer[layer] + a.held_of[layer][m];
}

int32_t Cells::Stored(const Analysis& a, int32_t layer, int32_t m) const {
  return stored_of_layer[layer] + a.stored_of[layer][m];
}

bool TrainsAt(const Instruction& i) {
  return i.op == Op::kBackward || i.op == Op::kBackwardWeight ||
         (i.op == Op::kLoss && (i.flags & kForwardOnly) == 0);
}

bool GivesAt(const Instruction& i) {
  return i.op == Op::kBackward || i.op == Op::kBackwardInput ||
         (i.op == Op::kLoss && (i.flags & kForwardOnly) == 0);
}

bool KeepsApart(const ProgramShape& shape, const Instruction& i, int32_t slab) {
  if ((i.flags & kApart) == 0) return false;
  int32_t users = 0;
  for (int32_t l = 1; l + 1 < shape.layers; ++l) {
    for (const int32_t s : shape.slabs_of_layer[l]) users += s == slab ? 1 : 0;
  }
  return users > 1;
}

int32_t CountCells(const Program& program, const Analysis& analysis) {
  return Cells(program, analysis).cells;
}

namespace {

std::vector<Access> AccessesOfTransfer(const Cells& cells, const Analysis& a,
                                       const Instruction& i) {
  const bool sends = i.op == Op::kSend;
  const bool gradient = (i.flags & kOfGradient) != 0;
  const int32_t from = sends ? i.layer : i.layer - 1;
  return {{gradient ? cells.Boundary(a, from, i.micro_batch)
                    : cells.Slot(a, i.layer, i.micro_batch),
           !sends}};
}

// What all visits have alike.
std::vector<Access> AccessesOfVisit(const Cells& cells, const Analysis& a,
                                    const Instruction& i) {
  std::vector<Access> out;
  if ((i.flags & kApart) != 0) out.push_back({cells.apart, true});
  out.push_back({cells.Slot(a, i.layer, i.micro_batch), i.op == Op::kForward});
  if (GivesAt(i)) {
    out.push_back({cells.Boundary(a, i.layer, i.micro_batch), true});
  }
  return out;
}

void AddCopy(const Cells& cells, const Program& program, const Analysis& a,
             int32_t index, std::vector<Access>& out) {
  const Instruction& i = program.instructions[index];
  const PlaneSet planes = PlaneSetOf(i);
  const bool evicts = i.op == Op::kEvict;
  out.push_back({cells.Place(program, a, planes, i.slab, index), !evicts});
  out.push_back({cells.Where(planes, i.slab), !evicts});
  if (evicts || i.op == Op::kFetch) {
    out.push_back({cells.Home(planes, i.slab), evicts});
  }
}

// Weights that are written at home, where no copy may be.
void AddHomeWeights(const Cells& cells, int32_t slab,
                    std::vector<Access>& out) {
  out.push_back({cells.Where(PlaneSet::kWeight, slab), false});
  out.push_back({cells.Home(PlaneSet::kWeight, slab), true});
}

// Whole gradients that are written.
void AddWholes(const Cells& cells, const ProgramShape& shape, const Analysis& a,
               const Instruction& i, std::vector<Access>& out) {
  const auto add = [&](int32_t slab) {
    if (HasWhole(shape, slab))
      out.push_back({cells.Whole(shape, a, slab), true});
  };
  if (i.op == Op::kReduce || i.op == Op::kProbe) add(i.slab);
  for (int32_t s = 0; s < shape.slabs && TrainsAt(i); ++s) {
    const auto& slabs = shape.slabs_of_layer[i.layer];
    const bool here = std::ranges::find(slabs, s) != slabs.end();
    if (here && !KeepsApart(shape, i, s)) add(s);
  }
}

void AddNorm(const Cells& cells, std::vector<Access>& out) {
  for (int32_t s = 0; s < cells.slabs; ++s) {
    out.push_back({3 * cells.slabs + s, true});
  }
  out.push_back({cells.loss, false});
  out.push_back({cells.norm, true});
}

void AddHostUpdate(const Cells& cells, int32_t slab, std::vector<Access>& out) {
  AddHomeWeights(cells, slab, out);
  out.push_back({cells.Where(PlaneSet::kGradient, slab), false});
  out.push_back({cells.Home(PlaneSet::kGradient, slab), false});
  out.push_back({cells.Home(PlaneSet::kState, slab), true});
}

}  // namespace

std::vector<Access> AccessesOf(const Program& program, const Analysis& a,
                               int32_t index) {
  const Instruction& i = program.instructions[index];
  const Cells layout(program, a);
  const int32_t n = program.shape.slabs;
  if (i.op == Op::kInspect) {
    return {{layout.Slot(a, i.layer + 1, i.micro_batch), false},
            {layout.found, true}};
  }
  if (i.op == Op::kSend || i.op == Op::kRecv) {
    return AccessesOfTransfer(layout, a, i);
  }
  if (i.op == Op::kStoreSlot || i.op == Op::kLoadSlot) {
    const bool goes = i.op == Op::kStoreSlot;
    return {{layout.Slot(a, i.layer, i.micro_batch), !goes},
            {layout.Stored(a, i.layer, i.micro_batch), goes}};
  }
  std::vector<Access> out;
  if (i.layer >= 0 && i.op != Op::kProbe) out = AccessesOfVisit(layout, a, i);
  for (const Work& work : WorkOf(program.shape, i)) {
    out.push_back(
        {layout.Place(program, a, work.planes, work.slab, index), work.write});
    out.push_back({layout.Where(work.planes, work.slab), false});
  }
  AddWholes(layout, program.shape, a, i, out);
  const bool host = i.slab >= 0 && !program.shape.host_updates.empty() &&
                    program.shape.host_updates[i.slab];
  switch (i.op) {
    case Op::kProbe:
      out.push_back({layout.apart, false});
      out.push_back({layout.found, true});
      break;
    case Op::kForward:
      out.push_back({layout.Slot(a, i.layer + 1, i.micro_batch), true});
      break;
    case Op::kLoss:
      out.push_back({layout.loss, true});
      break;
    case Op::kBackwardInput:
    case Op::kBackwardWeight:
      out.push_back(
          {layout.Held(a, i.layer, i.micro_batch), i.op == Op::kBackwardInput});
      break;
    case Op::kSquares:
      out.push_back({3 * n + i.slab, true});
      break;
    case Op::kNorm:
      AddNorm(layout, out);
      break;
    case Op::kUpdate:
      out.push_back({layout.norm, false});
      if (host) AddHostUpdate(layout, i.slab, out);
      break;
    case Op::kGather:
      if (host) AddHomeWeights(layout, i.slab, out);
      break;
    case Op::kSum:
      for (int32_t s = 0; s < n; ++s) {
        const bool whole = HasWhole(program.shape, s) && a.whole_of[s] >= 0;
        out.push_back(
            {whole ? layout.Whole(program.shape, a, s) : n + s, false});
      }
      out.push_back({layout.loss, false});
      out.push_back({layout.found, true});
      break;
    case Op::kFetch:
    case Op::kTake:
    case Op::kEvict:
    case Op::kRelease:
      AddCopy(layout, program, a, index, out);
      break;
    case Op::kSave:
      out.push_back({i.slab, false});
      out.push_back({2 * n + i.slab, false});
      break;
    default:
      break;
  }
  return out;
}

}  // namespace delink::step_test
