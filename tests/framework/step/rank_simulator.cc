#include "tests/framework/step/rank_simulator.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace delink::step_test {

Simulation::Simulation(const Program& program, const Analysis& analysis,
                       Dice& dice)
    : program_(program),
      shape_(program.shape),
      a_(analysis),
      layout_(program, analysis),
      count_(static_cast<int32_t>(program.instructions.size())),
      done_(size_t{kSteps} * count_, false),
      users_(layout_.cells, 0),
      content_(layout_.cells),
      planes_(layout_.cells),
      expected_(shape_.slabs),
      squares_step_(shape_.slabs, -1) {
  for (const PlaneSet planes : kAllPlaneSets) {
    for (int32_t s = 0; s < shape_.slabs; ++s) {
      planes_[layout_.Home(planes, s)].slab = s;
    }
  }
  for (int32_t s = 0; s < shape_.slabs; ++s) {
    planes_[layout_.Home(PlaneSet::kWeight, s)].whole = !HasShard(shape_, s);
  }
  for (int32_t i = 0; i < count_; ++i) {
    const Instruction& instruction = program.instructions[i];
    accesses_.push_back(AccessesOf(program, analysis, i));
    lanes_[static_cast<int>(instruction.lane)].order.push_back(i);
  }
  for (int32_t l = 0; l < shape_.layers; ++l) {
    if (!Here(l)) continue;
    for (const int32_t s : shape_.slabs_of_layer[l]) {
      for (int32_t m = 0; m < shape_.micro_batches; ++m) {
        expected_[s].set(Bit(l, m));
      }
    }
  }
  for (LaneState& lane : lanes_) {
    if (!lane.order.empty()) lane.weight = 1 << (3 * dice.Below(4));
  }
}

bool Simulation::IsReady(int lane) const {
  const LaneState& l = lanes_[lane];
  if (l.running >= 0 || l.next >= kSteps * l.order.size()) return false;
  const int32_t position = l.Position(count_);
  for (const Dependency& d : a_.dependencies[position % count_]) {
    const int32_t step = position / count_ - (d.previous_step ? 1 : 0);
    if (step >= 0 && !done_[step * count_ + d.instruction]) return false;
  }
  return true;
}

std::string Simulation::Begin(int lane) {
  LaneState& l = lanes_[lane];
  l.running = l.Position(count_);
  const std::string error = Start(l.running);
  if (error.empty()) return "";
  return absl::StrCat("stage ", program_.stage, ", step ", l.running / count_,
                      ", instruction ", l.running % count_, ", ",
                      ToString(program_.instructions[l.running % count_]), ": ",
                      error);
}

void Simulation::Finish(int lane) {
  LaneState& l = lanes_[lane];
  End(l.running);
  done_[l.running] = true;
  l.running = -1;
  ++l.next;
}

std::string Simulation::Start(int32_t position) {
  const int32_t index = position % count_;
  const Instruction& i = program_.instructions[index];
  step_ = position / count_;
  for (const Access& access : accesses_[position % count_]) {
    int32_t& users = users_[access.cell];  // readers, or -1 for a writer
    if (access.write ? users != 0 : users < 0) {
      return absl::StrCat("cell ", access.cell, " is in use");
    }
    users = access.write ? -1 : users + 1;
  }
  switch (i.op) {
    case Op::kForward:
    case Op::kLoss:
    case Op::kBackward:
    case Op::kBackwardInput:
    case Op::kBackwardWeight:
      return StartVisit(i, index);
    case Op::kReduce:
      return StartReduce(i.slab, index);
    case Op::kSquares: {
      const Planes& g = PlanesAt(PlaneSet::kGradient, i.slab, index);
      return IsComplete(i.slab, g) && g.gradient.reduced
                 ? ""
                 : "the gradient is not reduced";
    }
    case Op::kNorm:
      for (int32_t s = 0; s < shape_.slabs; ++s) {
        if (expected_[s].any() && squares_step_[s] != step_) {
          return "squares are missing";
        }
      }
      return HasLosses() ? "" : "losses are missing";
    case Op::kFetch:
    case Op::kTake:
    case Op::kEvict:
    case Op::kRelease:
      return StartMove(i, index);
    case Op::kStoreSlot:
    case Op::kLoadSlot:
      return StartStore(i);
    case Op::kSend:
    case Op::kRecv:
      return StartTransfer(i);
    case Op::kInspect:
      return StartInspect(
          content_[layout_.Slot(a_, i.layer + 1, i.micro_batch)], i);
    case Op::kSum:
      if (!HasLosses()) return "losses are missing";
      for (int32_t s = 0; s < shape_.slabs && Probes(); ++s) {
        if (expected_[s].none()) continue;
        // What no blocks share nobody reads.
        const bool shared = KeepsApartOfAny(s);
        if (!shared) continue;
        const Planes& g =
            planes_[HasWhole(shape_, s) ? layout_.Whole(shape_, a_, s)
                                        : layout_.Home(PlaneSet::kGradient, s)];
        if (!IsComplete(s, g)) return "a gradient is not complete";
        if (g.gradient.reduced != IsSpread(s)) {
          return "a gradient is not that of all stages";
        }
      }
      return found_ == Findings() ? "" : "it has not been found yet";
    case Op::kProbe:
      if (apart_.step != step_ || apart_.layer != i.layer ||
          apart_.micro_batch != i.micro_batch || !apart_left_[i.slab]) {
        return "the gradient is not kept apart";
      }
      return Add(i, i.slab, index, a_.written[index].front());
    case Op::kUpdate:
      return StartUpdate(i.slab, index);
    default:
      return "";
  }
}

std::string Simulation::StartReduce(int32_t slab, int32_t index) {
  const Planes& g = SummedAt(slab, index);
  const bool parts = HasParts(slab);
  if (parts ? g.slab != slab || g.gradient.step != step_
            : !IsComplete(slab, g)) {
    return "the gradient is not complete";
  }
  if (g.gradient.reduced || g.gradient.consumed) {
    return "the gradient is already reduced";
  }
  const Planes& shard = PlanesAt(PlaneSet::kGradient, slab, index);
  if (!HasWhole(shape_, slab) || !Updates()) return "";
  if (shard.slab != slab) return "there is another slab's gradient";
  if (Adds(a_, index)) {
    const bool fits = parts && shard.gradient.step == step_ &&
                      (shard.gradient.held & g.gradient.held).none();
    return fits ? "" : "a part is added to a shard of another step";
  }
  return shard.gradient.consumed ? ""
                                 : "a shard is overwritten before its update";
}

bool Simulation::IsWholeNeeded(const Planes& planes) const {
  if (planes.slab < 0) return false;
  if (!Probes()) return !planes.gradient.consumed;
  return planes.gradient.step == step_ && KeepsApartOfAny(planes.slab);
}

bool Simulation::HasCopyOfWeights(int32_t slab) const {
  const auto& classes =
      shape_.copy_class[static_cast<size_t>(PlaneSet::kWeight)];
  if (classes.empty() || classes[slab] < 0) return false;
  const int32_t first = layout_.copies[classes[slab]];
  for (int32_t k = 0; k < shape_.copies[classes[slab]]; ++k) {
    if (planes_[first + k].slab == slab) return true;
  }
  return false;
}

std::string Simulation::StartUpdate(int32_t slab, int32_t index) {
  if (norm_step_ != step_) return "the norm is of another step";
  if (HasShard(shape_, slab) && HasCopyOfWeights(slab)) {
    return "a shard is updated of which there is a whole copy";
  }
  for (const PlaneSet planes : {WrittenAt(shape_, slab), PlaneSet::kState}) {
    const Planes& old = UpdatedAt(planes, slab, index);
    if (old.slab != slab || old.version != step_) {
      return "updated twice or never";
    }
  }
  const Planes& g = UpdatedAt(PlaneSet::kGradient, slab, index);
  return IsComplete(slab, g) && g.gradient.reduced
             ? ""
             : "the gradient is not that of the step";
}

std::string Simulation::StartMove(const Instruction& i, int32_t index) {
  const PlaneSet planes = PlaneSetOf(i);
  const Planes& copy = PlanesAt(planes, i.slab, index);
  const Planes& home = planes_[layout_.Home(planes, i.slab)];
  if (i.op == Op::kFetch || i.op == Op::kTake) {
    if (copy.slab >= 0) return "the copy is still needed";
    if (planes == PlaneSet::kGradient && i.op == Op::kFetch &&
        home.gradient.step != step_) {
      return "there is nothing of the gradient";
    }
    if (GathersAt(shape_, i) && home.parted) return "the shard is in parts";
    const bool shard = IsOfWeights(planes) && HasShard(shape_, i.slab);
    return home.whole != shard ? "" : "the weights are not whole";
  }
  if (i.op == Op::kEvict && copy.whole != home.whole &&
      HasShard(shape_, i.slab)) {
    return "whole weights take the place of a shard";
  }
  return copy.slab == i.slab ? "" : "the copy is of another slab";
}

void Simulation::Move(const Instruction& i, int32_t index) {
  Planes& copy = PlanesAt(PlaneSetOf(i), i.slab, index);
  Planes& home = planes_[layout_.Home(PlaneSetOf(i), i.slab)];
  if (i.op == Op::kFetch) copy = home;
  if (GathersAt(shape_, i)) copy.whole = true;
  if (i.op == Op::kTake) copy = {.slab = i.slab};
  if (i.op == Op::kEvict) home = copy;
  if (i.op == Op::kRelease) copy = {};
}

std::string Simulation::StartStore(const Instruction& i) const {
  const bool goes = i.op == Op::kStoreSlot;
  const Content& slot = content_[layout_.Slot(a_, i.layer, i.micro_batch)];
  const Content& stored = content_[layout_.Stored(a_, i.layer, i.micro_batch)];
  const Content& from = goes ? slot : stored;
  if (!Holds(from, i.layer, i.micro_batch) || !from.saved) {
    return "there is something else";
  }
  return (goes ? stored : slot).live ? "its place is still needed" : "";
}

void Simulation::Store(const Instruction& i) {
  Content& slot = content_[layout_.Slot(a_, i.layer, i.micro_batch)];
  Content& stored = content_[layout_.Stored(a_, i.layer, i.micro_batch)];
  const bool goes = i.op == Op::kStoreSlot;
  (goes ? stored : slot) = goes ? slot : stored;
  (goes ? slot : stored).live = false;
}

bool Simulation::KeepsApartOfAny(int32_t slab) const {
  return KeepsApart(shape_, {.flags = kApart}, slab);
}

bool Simulation::IsSpread(int32_t slab) const {
  int32_t blocks = 0;
  bool elsewhere = false;
  for (int32_t l = 0; l < shape_.layers; ++l) {
    for (const int32_t s : shape_.slabs_of_layer[l]) {
      if (s != slab) continue;
      blocks += l > 0 && l + 1 < shape_.layers ? 1 : 0;
      elsewhere |= !Here(l);
    }
  }
  return blocks > 1 && elsewhere;
}

bool Simulation::HasLosses() const {
  return !Here(shape_.layers - 1) ||
         (loss_step_ == step_ && losses_ == shape_.micro_batches);
}

std::string Simulation::StartTransfer(const Instruction& i) const {
  const bool sends = i.op == Op::kSend;
  const bool gradient = (i.flags & kOfGradient) != 0;
  const Content& c = content_[Moved(i, sends)];
  if (!sends) return c.live ? "its place is still needed" : "";
  return Holds(c, gradient ? i.layer - 1 : i.layer, i.micro_batch)
             ? ""
             : "it does not hold what is sent";
}

std::string Simulation::StartInspect(const Content& c,
                                     const Instruction& i) const {
  const bool there = c.layer == i.layer + 1 && c.step == step_ &&
                     c.micro_batch == i.micro_batch && !c.saved;
  return there ? "" : "what it looks at is gone";
}

std::string Simulation::StartVisit(const Instruction& i, int32_t index) {
  const int32_t wanted = Updates() ? step_ : 0;
  for (const int32_t s : shape_.slabs_of_layer[i.layer]) {
    const Planes& weights = PlanesAt(PlaneSet::kWeight, s, index);
    if (weights.slab != s || weights.version != wanted || !weights.whole) {
      return absl::StrCat("slab ", s, " has version ", weights.version,
                          " of slab ", weights.slab);
    }
  }
  if (i.op == Op::kForward) return StartForward(i);
  const std::string error = StartBackward(i);
  if (!error.empty() || !TrainsAt(i)) return error;
  return StartContribution(i, index);
}

std::string Simulation::StartForward(const Instruction& i) const {
  const int32_t l = i.layer, m = i.micro_batch;
  const Content& slot = content_[layout_.Slot(a_, l, m)];
  if (l == 0 ? slot.live : !Holds(slot, l, m) || slot.saved) {
    return "its slot does not hold its input";
  }
  if (content_[layout_.Slot(a_, l + 1, m)].live) {
    return "the slot of the next layer is still needed";
  }
  return "";
}

// A loss, a backward or a half of one.
std::string Simulation::StartBackward(const Instruction& i) const {
  const int32_t l = i.layer, m = i.micro_batch;
  const Content& slot = content_[layout_.Slot(a_, l, m)];
  if (!Holds(slot, l, m) || slot.saved != (i.op != Op::kLoss)) {
    return "its slot does not hold what it needs";
  }
  if (i.op == Op::kBackwardWeight &&
      !Holds(content_[layout_.Held(a_, l, m)], l, m)) {
    return "what it needs is not held";
  }
  if (i.op == Op::kBackwardInput && content_[layout_.Held(a_, l, m)].live) {
    return "what is held there is still needed";
  }
  if (!GivesAt(i)) return "";
  const Content& boundary = content_[layout_.Boundary(a_, l, m)];
  if (i.op == Op::kLoss ? boundary.live : !Holds(boundary, l, m)) {
    return "the boundary is in use or holds something else";
  }
  return "";
}

std::string Simulation::StartContribution(const Instruction& i, int32_t index) {
  const auto& slabs = shape_.slabs_of_layer[i.layer];
  if (a_.written[index].size() != slabs.size()) return "written: wrong size";
  for (size_t k = 0; k < slabs.size(); ++k) {
    const bool written = a_.written[index][k];
    if (KeepsApart(shape_, i, slabs[k])) {
      if (written) return "what is kept apart is added to something";
      continue;
    }
    const std::string error = Add(i, slabs[k], index, written);
    if (!error.empty()) return error;
  }
  if ((i.flags & kApart) == 0) return "";
  if (apart_left_.any()) return "what is kept apart is still needed";
  apart_ = {i.layer, i.micro_batch, step_, true, true};
  for (const int32_t s : slabs) apart_left_[s] = KeepsApart(shape_, i, s);
  return "";
}

std::string Simulation::Add(const Instruction& i, int32_t slab, int32_t index,
                            bool written) {
  Planes& planes = SummedAt(slab, index);
  const auto& cleared = a_.cleared[index];
  const bool clears = std::ranges::find(cleared, slab) != cleared.end();
  if (HasWhole(shape_, slab) && (!written || clears)) {
    if (IsWholeNeeded(planes)) return "a whole gradient is still needed";
    planes = {.slab = slab};
  }
  if (planes.slab != slab) return "there is another slab's gradient";
  Gradient& g = planes.gradient;
  if (!written || clears) {
    if (!g.consumed && Updates()) {
      return "a gradient is overwritten before its update";
    }
    g = {.step = step_, .consumed = false};
  }
  if (g.step != step_ || g.reduced || g.consumed ||
      g.held[Bit(i.layer, i.micro_batch)]) {
    return "a contribution is added to a gradient of another step";
  }
  g.held.set(Bit(i.layer, i.micro_batch));
  return "";
}

void Simulation::End(int32_t position) {
  const int32_t index = position % count_;
  const Instruction& i = program_.instructions[index];
  const int32_t step = position / count_;
  for (const Access& access : accesses_[position % count_]) {
    users_[access.cell] = access.write ? 0 : users_[access.cell] - 1;
  }
  switch (i.op) {
    case Op::kForward:
    case Op::kLoss:
    case Op::kBackward:
    case Op::kBackwardInput:
    case Op::kBackwardWeight:
      return EndVisit(i, step);
    case Op::kSend:
      content_[Moved(i, true)].live = false;
      return;
    case Op::kReduce:
      SummedAt(i.slab, index).gradient.reduced = true;
      if (HasWhole(shape_, i.slab) && !Probes()) {
        Planes& whole = SummedAt(i.slab, index);
        Gradient& shard = PlanesAt(PlaneSet::kGradient, i.slab, index).gradient;
        const Contributions before = shard.held;
        shard = whole.gradient;
        if (Adds(a_, index)) shard.held |= before;
        whole.gradient.consumed = true;
      }
      return;
    case Op::kSquares:
      squares_step_[i.slab] = step;
      return;
    case Op::kNorm:
      norm_step_ = step;
      return;
    case Op::kProbe:
      apart_left_.reset(i.slab);
      ++found_;
      return;
    case Op::kInspect:
      ++found_;
      return;
    case Op::kSum:
      found_ = 0;
      return;
    case Op::kUpdate:
      UpdatedAt(PlaneSet::kGradient, i.slab, index).gradient.consumed = true;
      ++UpdatedAt(PlaneSet::kState, i.slab, index).version;
      ++UpdatedAt(WrittenAt(shape_, i.slab), i.slab, index).version;
      UpdatedAt(WrittenAt(shape_, i.slab), i.slab, index).whole =
          !shape_.gathers[i.slab] && !HasShard(shape_, i.slab);
      UpdatedAt(WrittenAt(shape_, i.slab), i.slab, index).parted =
          shape_.gathers[i.slab] && HasShard(shape_, i.slab);
      return;
    case Op::kGather:
      UpdatedAt(WrittenAt(shape_, i.slab), i.slab, index).whole =
          !HasShard(shape_, i.slab);
      UpdatedAt(WrittenAt(shape_, i.slab), i.slab, index).parted = false;
      return;
    case Op::kFetch:
    case Op::kTake:
    case Op::kEvict:
    case Op::kRelease:
      return Move(i, index);
    case Op::kStoreSlot:
    case Op::kLoadSlot:
      return Store(i);
    default:
      return;
  }
}

void Simulation::EndVisit(const Instruction& i, int32_t step) {
  const int32_t l = i.layer, m = i.micro_batch;
  Content& slot = content_[layout_.Slot(a_, l, m)];
  if (i.op == Op::kForward) {
    slot = {l, m, step, true, (i.flags & kForwardOnly) == 0};
    content_[layout_.Slot(a_, l + 1, m)] = {l + 1, m, step, false, true};
    return;
  }
  EndBackward(i, step);
}

void Simulation::EndBackward(const Instruction& i, int32_t step) {
  const int32_t l = i.layer, m = i.micro_batch;
  if (i.op == Op::kBackwardInput) {
    content_[layout_.Held(a_, l, m)] = {l, m, step, true, true};
  } else {
    content_[layout_.Slot(a_, l, m)].live = false;
  }
  if (i.op == Op::kBackwardWeight) {
    content_[layout_.Held(a_, l, m)].live = false;
  }
  if (i.op == Op::kLoss) {
    losses_ = loss_step_ == step ? losses_ + 1 : 1;
    loss_step_ = step;
  }
  if (GivesAt(i)) {
    content_[layout_.Boundary(a_, l, m)] = {l - 1, m, step, true, l > 0};
  }
}

int32_t Simulation::Findings() const {
  if (program_.kind == PassKind::kDiagnosis) {
    int32_t layers = 0;
    for (int32_t l = 0; l + 1 < shape_.layers; ++l) layers += Here(l) ? 1 : 0;
    return layers * shape_.micro_batches;
  }
  int32_t findings = 0;
  for (int32_t l = 1; l + 1 < shape_.layers && Probes(); ++l) {
    if (!Here(l)) continue;
    for (const int32_t s : shape_.slabs_of_layer[l]) {
      findings += KeepsApart(shape_, {.flags = kApart}, s) ? 1 : 0;
    }
  }
  return findings * shape_.micro_batches;
}

bool Simulation::IsThrough() const {
  return std::all_of(lanes_.begin(), lanes_.end(), [&](const LaneState& l) {
    return l.next >= kSteps * l.order.size();
  });
}

int32_t Simulation::Moved(const Instruction& i, bool sends) const {
  if ((i.flags & kOfGradient) == 0) {
    return layout_.Slot(a_, i.layer, i.micro_batch);
  }
  return layout_.Boundary(a_, sends ? i.layer : i.layer - 1, i.micro_batch);
}

}  // namespace delink::step_test
