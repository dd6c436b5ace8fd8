#include "tests/framework/step/simulator.h"

#include <array>
#include <bitset>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/framework/step/cells.h"

namespace delink::step_test {
namespace {

constexpr int32_t kSteps = 3;

// What a slot or a boundary holds.
struct Content {
  int32_t layer = -1, micro_batch = -1, step = -1;
  bool saved = false;  // more than the input boundary
  bool live = false;
};

using Contributions = std::bitset<128>;

struct Gradient {
  Contributions held;
  int32_t step = -1;
  bool reduced = false, consumed = true;
};

class Simulation {
 public:
  Simulation(const Program& program, const Analysis& analysis, Dice& dice)
      : program_(program),
        shape_(program.shape),
        a_(analysis),
        dice_(dice),
        layout_(program, analysis),
        count_(static_cast<int32_t>(program.instructions.size())),
        done_(size_t{kSteps} * count_, false),
        users_(layout_.cells, 0),
        content_(layout_.cells),
        gradients_(shape_.slabs),
        expected_(shape_.slabs),
        squares_step_(shape_.slabs, -1),
        owned_version_(shape_.slabs, 0),
        compute_version_(shape_.slabs, 0) {
    for (int32_t i = 0; i < count_; ++i) {
      const Instruction& instruction = program.instructions[i];
      accesses_.push_back(AccessesOf(program, analysis, instruction));
      lanes_[static_cast<int>(instruction.lane)].order.push_back(i);
    }
    for (int32_t l = 0; l < shape_.layers; ++l) {
      for (const int32_t s : shape_.slabs_of_layer[l]) {
        for (int32_t m = 0; m < shape_.micro_batches; ++m) {
          expected_[s].set(Bit(l, m));
        }
      }
    }
    for (LaneState& lane : lanes_) lane.weight = 1 << (3 * dice_.Below(4));
  }

  std::string Run() {
    for (int32_t left = kSteps * count_; left > 0;) {
      const int lane = ChooseLane();
      if (lane < 0) return "the lanes wait for each other";
      LaneState& l = lanes_[lane];
      if (l.running >= 0) {
        End(l.running);
        done_[l.running] = true;
        l.running = -1;
        ++l.next;
        --left;
        continue;
      }
      l.running = l.Position(count_);
      const std::string error = Start(l.running);
      if (!error.empty()) {
        return absl::StrCat("step ", l.running / count_, ", instruction ",
                            l.running % count_, ", ",
                            ToString(program_.instructions[l.running % count_]),
                            ": ", error);
      }
    }
    return "";
  }

 private:
  struct LaneState {
    std::vector<int32_t> order;
    size_t next = 0;
    int32_t running = -1;
    int32_t weight = 1;
    int32_t Position(int32_t count) const {
      return static_cast<int32_t>(next / order.size()) * count +
             order[next % order.size()];
    }
  };

  size_t Bit(int32_t layer, int32_t m) const {
    return static_cast<size_t>(layer) * shape_.micro_batches + m;
  }

  bool CanMove(const LaneState& lane) const {
    if (lane.running >= 0) return true;
    if (lane.next >= kSteps * lane.order.size()) return false;
    const int32_t position = lane.Position(count_);
    for (const Dependency& d : a_.dependencies[position % count_]) {
      const int32_t step = position / count_ - (d.previous_step ? 1 : 0);
      if (step >= 0 && !done_[step * count_ + d.instruction]) return false;
    }
    return true;
  }

  // Lanes of a high weight run ahead as far as they can.
  int ChooseLane() {
    std::array<bool, kLanes> movable;
    int32_t total = 0;
    for (int k = 0; k < kLanes; ++k) {
      movable[k] = CanMove(lanes_[k]);
      if (movable[k]) total += lanes_[k].weight;
    }
    if (total == 0) return -1;
    int32_t left = dice_.Below(total);
    for (int k = 0; k < kLanes; ++k) {
      if (!movable[k]) continue;
      left -= lanes_[k].weight;
      if (left < 0) return k;
    }
    return -1;
  }

  bool Holds(const Content& c, int32_t layer, int32_t m) const {
    return c.live && c.layer == layer && c.micro_batch == m && c.step == step_;
  }

  std::string Start(int32_t position) {
    const Instruction& i = program_.instructions[position % count_];
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
        return StartVisit(i, position % count_);
      case Op::kReduce:
        return gradients_[i.slab].step == step_ &&
                       !gradients_[i.slab].reduced &&
                       gradients_[i.slab].held == expected_[i.slab]
                   ? ""
                   : "the gradient is not complete";
      case Op::kSquares:
        return gradients_[i.slab].step == step_ && gradients_[i.slab].reduced
                   ? ""
                   : "the gradient is not reduced";
      case Op::kNorm:
        for (const int32_t squares : squares_step_) {
          if (squares != step_) return "squares are missing";
        }
        return loss_step_ == step_ && losses_ == shape_.micro_batches
                   ? ""
                   : "losses are missing";
      case Op::kInspect:
        return StartInspect(
            content_[layout_.Slot(a_, i.layer + 1, i.micro_batch)], i);
      case Op::kSum:
        if (loss_step_ != step_ || losses_ != shape_.micro_batches) {
          return "losses are missing";
        }
        for (size_t s = 0; s < gradients_.size() && Probes(); ++s) {
          if (gradients_[s].step != step_ ||
              gradients_[s].held != expected_[s]) {
            return "a gradient is not complete";
          }
        }
        return found_ == Findings() ? "" : "it has not been found yet";
      case Op::kProbe:
        if (apart_.step != step_ || apart_.layer != i.layer ||
            apart_.micro_batch != i.micro_batch || !apart_left_[i.slab]) {
          return "the gradient is not kept apart";
        }
        return Add(i, i.slab, a_.written[position % count_].front());
      case Op::kUpdate:
        if (norm_step_ != step_) return "the norm is of another step";
        if (owned_version_[i.slab] != step_) return "updated twice or never";
        return gradients_[i.slab].step == step_ && gradients_[i.slab].reduced &&
                       gradients_[i.slab].held == expected_[i.slab]
                   ? ""
                   : "the gradient is not that of the step";
      default:
        return "";
    }
  }

  // A loss may be done with what is looked at, but nobody has overwritten it.
  std::string StartInspect(const Content& c, const Instruction& i) const {
    const bool there = c.layer == i.layer + 1 && c.step == step_ &&
                       c.micro_batch == i.micro_batch && !c.saved;
    return there ? "" : "what it looks at is gone";
  }

  std::string StartVisit(const Instruction& i, int32_t index) {
    const int32_t l = i.layer, m = i.micro_batch;
    for (const int32_t s : shape_.slabs_of_layer[l]) {
      if (compute_version_[s] != (Updates() ? step_ : 0)) {
        return absl::StrCat("slab ", s, " has version ", compute_version_[s]);
      }
    }
    const Content& slot = content_[layout_.Slot(a_, l, m)];
    if (i.op == Op::kForward) {
      if (l == 0 ? slot.live : !Holds(slot, l, m) || slot.saved) {
        return "its slot does not hold its input";
      }
      if (content_[layout_.Slot(a_, l + 1, m)].live) {
        return "the slot of the next layer is still needed";
      }
      return "";
    }
    if (!Holds(slot, l, m) || slot.saved != (i.op == Op::kBackward)) {
      return "its slot does not hold what it needs";
    }
    if (!TrainsAt(i)) return "";
    const Content& boundary = content_[layout_.boundaries + a_.boundary_of[m]];
    if (i.op == Op::kLoss ? boundary.live : !Holds(boundary, l, m)) {
      return "the boundary is in use or holds something else";
    }
    return StartContribution(i, index);
  }

  std::string StartContribution(const Instruction& i, int32_t index) {
    const auto& slabs = shape_.slabs_of_layer[i.layer];
    if (a_.written[index].size() != slabs.size()) return "written: wrong size";
    for (size_t k = 0; k < slabs.size(); ++k) {
      const bool written = a_.written[index][k];
      if (KeepsApart(shape_, i, slabs[k])) {
        if (written) return "what is kept apart is added to something";
        continue;
      }
      const std::string error = Add(i, slabs[k], written);
      if (!error.empty()) return error;
    }
    if ((i.flags & kApart) == 0) return "";
    if (apart_left_.any()) return "what is kept apart is still needed";
    apart_ = {i.layer, i.micro_batch, step_, true, true};
    for (const int32_t s : slabs) apart_left_[s] = KeepsApart(shape_, i, s);
    return "";
  }

  std::string Add(const Instruction& i, int32_t slab, bool written) {
    Gradient& g = gradients_[slab];
    if (!written) {
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

  void End(int32_t position) {
    const Instruction& i = program_.instructions[position % count_];
    const int32_t step = position / count_;
    for (const Access& access : accesses_[position % count_]) {
      users_[access.cell] = access.write ? 0 : users_[access.cell] - 1;
    }
    switch (i.op) {
      case Op::kForward:
      case Op::kLoss:
      case Op::kBackward:
        return EndVisit(i, step);
      case Op::kReduce:
        gradients_[i.slab].reduced = true;
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
        gradients_[i.slab].consumed = true;
        ++owned_version_[i.slab];
        if (!shape_.gathers[i.slab]) ++compute_version_[i.slab];
        return;
      case Op::kFetch:
        compute_version_[i.slab] = owned_version_[i.slab];
        return;
      default:
        return;
    }
  }

  void EndVisit(const Instruction& i, int32_t step) {
    const int32_t l = i.layer, m = i.micro_batch;
    Content& slot = content_[layout_.Slot(a_, l, m)];
    if (i.op == Op::kForward) {
      slot = {l, m, step, true, (i.flags & kForwardOnly) == 0};
      content_[layout_.Slot(a_, l + 1, m)] = {l + 1, m, step, false, true};
      return;
    }
    slot.live = false;
    if (i.op == Op::kLoss) {
      losses_ = loss_step_ == step ? losses_ + 1 : 1;
      loss_step_ = step;
    }
    if (TrainsAt(i)) {
      content_[layout_.boundaries + a_.boundary_of[m]] = {l - 1, m, step, true,
                                                          l > 0};
    }
  }

  // That a pass of this kind has to make before its sum.
  int32_t Findings() const {
    if (program_.kind == PassKind::kDiagnosis) {
      return (shape_.layers - 1) * shape_.micro_batches;
    }
    int32_t findings = 0;
    for (int32_t l = 1; l + 1 < shape_.layers && Probes(); ++l) {
      for (const int32_t s : shape_.slabs_of_layer[l]) {
        findings += KeepsApart(shape_, {.flags = kApart}, s) ? 1 : 0;
      }
    }
    return findings * shape_.micro_batches;
  }

  bool Probes() const { return program_.kind == PassKind::kProbe; }
  bool Updates() const { return program_.kind == PassKind::kStep; }

  const Program& program_;
  const ProgramShape& shape_;
  const Analysis& a_;
  Dice& dice_;
  const Cells layout_;
  const int32_t count_;
  std::vector<std::vector<Access>> accesses_;
  std::array<LaneState, kLanes> lanes_;
  std::vector<bool> done_;
  std::vector<int32_t> users_;
  std::vector<Content> content_;  // by cell; of slots and boundaries
  std::vector<Gradient> gradients_;
  std::vector<Contributions> expected_;
  Content apart_;                // whose gradients are kept apart
  std::bitset<128> apart_left_;  // of which slabs they are still to be taken
  std::vector<int32_t> squares_step_;
  std::vector<int32_t> owned_version_, compute_version_;
  int32_t norm_step_ = -1, loss_step_ = -1, losses_ = 0, found_ = 0, step_ = 0;
};

}  // namespace

std::string Simulate(const Program& program, const Analysis& analysis,
                     Dice& dice) {
  return Simulation(program, analysis, dice).Run();
}

}  // namespace delink::step_test
