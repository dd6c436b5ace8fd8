#include "offload/plan/stored_slots.h"

#include <algorithm>
#include <utility>

#include "framework/base/check.h"
#include "framework/step/program/shape_table.h"
#include "framework/step/proof/well_formed.h"

namespace delink {
namespace {

// The slot of one visit.
struct Slot {
  int32_t layer = -1, micro_batch = -1;
  friend bool operator==(const Slot&, const Slot&) = default;
};

bool BeginsBackward(const Instruction& i) {
  return i.op == Op::kBackward || i.op == Op::kBackwardInput;
}
bool EndsSlot(const Instruction& i) {
  return i.op == Op::kBackward || i.op == Op::kBackwardWeight ||
         i.op == Op::kLoss;
}

// Writes the program.
class Storing {
 public:
  Storing(const Program& bare, const StoreOptions& options,
          const ChooseCopy& choose)
      : bare_(bare),
        shape_(bare.shape),
        options_(options),
        choose_(choose),
        table_(bare.shape),
        pools_(static_cast<size_t>(SlotClasses(bare.shape))) {
    to_ = {.shape = shape_, .kind = bare.kind, .stage = bare.stage};
    const std::vector<int32_t> none(shape_.micro_batches, -1);
    backward_.assign(shape_.layers, none);
    away_.assign(shape_.layers, std::vector<bool>(shape_.micro_batches, false));
    for (size_t i = 0; i < bare.instructions.size(); ++i) {
      const Instruction& at = bare.instructions[i];
      if (!BeginsBackward(at)) continue;
      backward_[at.layer][at.micro_batch] = static_cast<int32_t>(i);
    }
    FindRoom();
  }

  Program Run() {
    const std::vector<Instruction>& list = bare_.instructions;
    for (size_t i = 0; i < list.size(); ++i) {
      const Instruction& at = list[i];
      const Slot own{at.layer, at.micro_batch};
      if (BeginsBackward(at)) Bring(own);
      for (const Slot& slot : TakenBy(at)) {
        MakeRoom(PoolOf(slot));
        ++PoolOf(slot).there;
      }
      if (options_.beside > 0) BringNext(i);
      to_.instructions.push_back(at);
      if (at.op == Op::kForward && MayGo(at.layer)) {
        PoolOf(own).idle.push_back(own);
      }
      if (EndsSlot(at)) --PoolOf(own).there;
    }
    return std::move(to_);
  }

 private:
  // The slots of a class on the device.
  struct Pool {
    int32_t room = 0;
    int32_t there = 0;
    std::vector<Slot> idle;  // of these those that may go
  };

  Pool& PoolOf(const Slot& slot) {
    return pools_[static_cast<size_t>(SlotClassOf(shape_, slot.layer))];
  }
  bool IsHere(int32_t layer) const {
    return StageOf(shape_, layer) == bare_.stage;
  }
  bool MayGo(int32_t layer) const {
    return layer > 0 && layer + 1 < shape_.layers && options_.layers[layer];
  }

  // Slots that an instruction fills first.
  std::vector<Slot> TakenBy(const Instruction& at) const {
    std::vector<Slot> taken;
    const bool forward = at.op == Op::kForward;
    if (forward && at.layer == 0) taken.push_back({0, at.micro_batch});
    if (forward && IsHere(at.layer + 1)) {
      taken.push_back({at.layer + 1, at.micro_batch});
    }
    if (at.op == Op::kRecv && (at.flags & kOfGradient) == 0) {
      taken.push_back({at.layer, at.micro_batch});
    }
    return taken;
  }

  // The most slots that must be on the device at one time.
  void FindRoom() {
    std::vector<int32_t> needed(pools_.size(), 0);
    const auto count = [&](int32_t layer, int32_t more) {
      const auto pool = static_cast<size_t>(SlotClassOf(shape_, layer));
      needed[pool] += more;
      pools_[pool].room =
          std::max(pools_[pool].room, needed[pool] + options_.beside);
    };
    for (const Instruction& at : bare_.instructions) {
      for (const Slot& slot : TakenBy(at)) count(slot.layer, 1);
      if (BeginsBackward(at) && MayGo(at.layer)) count(at.layer, 1);
      if (at.op == Op::kForward && MayGo(at.layer)) count(at.layer, -1);
      if (EndsSlot(at)) count(at.layer, -1);
    }
  }

  // The slot's backward is next.
  void Bring(const Slot& slot) {
    Pool& pool = PoolOf(slot);
    std::erase(pool.idle, slot);
    if (!away_[slot.layer][slot.micro_batch]) return;
    MakeRoom(pool);
    Add(Op::kLoadSlot, slot);
    away_[slot.layer][slot.micro_batch] = false;
    ++pool.there;
  }

  // Loads the slot of the visit after instruction `i`.
  void BringNext(size_t i) {
    const std::vector<Instruction>& list = bare_.instructions;
    if (!IsVisit(list[i])) return;
    const auto next =
        std::find_if(list.begin() + static_cast<int64_t>(i) + 1, list.end(),
                     [](const Instruction& at) { return IsVisit(at); });
    if (next == list.end() || !BeginsBackward(*next)) return;
    const Slot slot{next->layer, next->micro_batch};
    const Pool& pool = PoolOf(slot);
    if (away_[slot.layer][slot.micro_batch] && pool.there < pool.room) {
      Bring(slot);
    }
  }

  void MakeRoom(Pool& pool) {
    if (pool.there < pool.room) return;
    DELINK_CHECK(!pool.idle.empty()) << "no slot may go";
    std::vector<int32_t> uses;
    for (const Slot& slot : pool.idle) {
      uses.push_back(backward_[slot.layer][slot.micro_batch]);
    }
    const Slot goes = pool.idle[choose_(uses)];
    std::erase(pool.idle, goes);
    Add(Op::kStoreSlot, goes);
    away_[goes.layer][goes.micro_batch] = true;
    --pool.there;
  }

  void Add(Op op, const Slot& slot) {
    Instruction i{
        .op = op, .layer = slot.layer, .micro_batch = slot.micro_batch};
    i.lane = table_.LaneOf(i);
    to_.instructions.push_back(i);
  }

  const Program& bare_;
  const ProgramShape& shape_;
  const StoreOptions& options_;
  const ChooseCopy& choose_;
  const ShapeTable table_;
  std::vector<Pool> pools_;
  // By layer and micro-batch.
  std::vector<std::vector<int32_t>> backward_;  // the instruction, or -1
  std::vector<std::vector<bool>> away_;
  Program to_;
};

}  // namespace

Program AddStores(const Program& bare, const StoreOptions& options,
                  const ChooseCopy& choose) {
  const bool any = std::find(options.layers.begin(), options.layers.end(),
                             true) != options.layers.end();
  if (!any || !MayHave(bare.kind, Op::kStoreSlot)) return bare;
  return Storing(bare, options, choose).Run();
}

Planner WithStores(Planner planner, StoreOptions options) {
  return [planner = std::move(planner), options = std::move(options)](
             PassKind kind, const ProgramShape& shape, int32_t stage) {
    return AddStores(planner(kind, shape, stage), options);
  };
}

}  // namespace delink
