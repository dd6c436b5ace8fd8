// One rank of a simulation: what its lanes do next, and what every piece of its
// memory holds. Part of the simulator (simulator.h).
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/step/program/dependencies.h"
#include "tests/framework/step/cells.h"
#include "tests/framework/step/programs.h"

namespace delink::step_test {

constexpr int32_t kSteps = 3;

// What a slot or a boundary holds, or what is held between halves.
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

// Planes of a slab, or of nobody, at home or in a copy: a gradient, or weights
// or state after so many updates.
struct Planes {
  int32_t slab = -1, version = 0;
  bool whole = true;  // weights: no shard, and of all ranks' updates
  // A shard that other ranks have too, each of which has updated a part.
  bool parted = false;
  Gradient gradient;
};

// One rank.
class Simulation {
 public:
  Simulation(const Program& program, const Analysis& analysis, Dice& dice);

  bool IsThrough() const;
  int32_t WeightOf(int lane) const { return lanes_[lane].weight; }
  // Whether the lane's next instruction may start.
  bool IsReady(int lane) const;
  // The instruction that runs or is next.
  const Instruction& At(int lane) const {
    return program_.instructions[lanes_[lane].Position(count_) % count_];
  }
  int32_t StepAt(int lane) const {
    return lanes_[lane].Position(count_) / count_;
  }

  bool Probes() const { return program_.kind == PassKind::kProbe; }

  std::string Begin(int lane);
  void Finish(int lane);
  // How many updates the shard has that the lane's instruction gathers, or 0.
  int32_t VersionOfShard(int lane) const {
    const Instruction& i = At(lane);
    if (!GathersAt(shape_, i)) return 0;
    return planes_[layout_.Home(PlaneSet::kWeight, i.slab)].version;
  }
  // What the lane, which receives, is given by that of another rank.
  void TakeFrom(const Simulation& sender, int lane) {
    content_[Moved(At(lane), false)] =
        sender.content_[sender.Moved(At(lane), true)];
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

  bool Here(int32_t layer) const {
    return StageAt(shape_, layer) == program_.stage;
  }
  // The cell that a transfer reads or fills.
  int32_t Moved(const Instruction& i, bool sends) const;

  bool Holds(const Content& c, int32_t layer, int32_t m) const {
    return c.live && c.layer == layer && c.micro_batch == m && c.step == step_;
  }

  std::string Start(int32_t position);

  bool HasLosses() const;

  std::string StartTransfer(const Instruction& i) const;

  // A loss may be done with what is looked at, but nobody has overwritten it.
  std::string StartInspect(const Content& c, const Instruction& i) const;

  std::string StartVisit(const Instruction& i, int32_t index);
  std::string StartForward(const Instruction& i) const;
  std::string StartBackward(const Instruction& i) const;

  std::string StartContribution(const Instruction& i, int32_t index);

  std::string Add(const Instruction& i, int32_t slab, int32_t index,
                  bool written);
  // Where instruction `index` works on planes; they may be others'.
  Planes& PlanesAt(PlaneSet planes, int32_t slab, int32_t index) {
    return planes_[layout_.Place(program_, a_, planes, slab, index)];
  }
  // The gradient that visits add to.
  Planes& SummedAt(int32_t slab, int32_t index) {
    return HasWhole(shape_, slab) ? planes_[layout_.Whole(shape_, a_, slab)]
                                  : PlanesAt(PlaneSet::kGradient, slab, index);
  }
  bool HasParts(int32_t slab) const {
    return shape_.reduces_parts && HasWhole(shape_, slab) && !Probes();
  }
  // Whether the whole gradient there is needed by what comes.
  bool IsWholeNeeded(const Planes& planes) const;
  // Where an update works on them, or a sum reads them: at home, or there.
  Planes& UpdatedAt(PlaneSet planes, int32_t slab, int32_t index) {
    const bool host = !shape_.host_updates.empty() && shape_.host_updates[slab];
    return host ? planes_[layout_.Home(planes, slab)]
                : PlanesAt(planes, slab, index);
  }
  std::string StartStore(const Instruction& i) const;
  void Store(const Instruction& i);
  std::string StartReduce(int32_t slab, int32_t index);
  std::string StartUpdate(int32_t slab, int32_t index);
  // Whether visits find the slab's weights in a copy.
  bool HasCopyOfWeights(int32_t slab) const;
  std::string StartMove(const Instruction& i, int32_t index);
  void Move(const Instruction& i, int32_t index);
  bool IsComplete(int32_t slab, const Planes& planes) const {
    const Gradient& g = planes.gradient;
    return planes.slab == slab && g.step == step_ && g.held == expected_[slab];
  }

  void End(int32_t position);

  void EndVisit(const Instruction& i, int32_t step);
  void EndBackward(const Instruction& i, int32_t step);

  // Whether a probe looks at the slab's gradient: blocks share it.
  bool KeepsApartOfAny(int32_t slab) const;
  // Whether it needs it from other stages.
  bool IsSpread(int32_t slab) const;

  // That a pass of this kind has to make before its sum.
  int32_t Findings() const;

  bool Updates() const { return program_.kind == PassKind::kStep; }

  const Program& program_;
  const ProgramShape& shape_;
  const Analysis& a_;
  const Cells layout_;
  const int32_t count_;
  std::vector<std::vector<Access>> accesses_;
  std::array<LaneState, kLanes> lanes_;
  std::vector<bool> done_;
  std::vector<int32_t> users_;
  std::vector<Content> content_;  // by cell; of those that have one
  std::vector<Planes> planes_;    // by cell
  std::vector<Contributions> expected_;
  Content apart_;                // whose gradients are kept apart
  std::bitset<128> apart_left_;  // of which slabs they are still to be taken
  std::vector<int32_t> squares_step_;
  int32_t norm_step_ = -1, loss_step_ = -1, losses_ = 0, found_ = 0, step_ = 0;
};

}  // namespace delink::step_test
