#include "framework/step/slot_scan.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <vector>

#include "framework/base/check.h"

namespace delink {
namespace {

constexpr int32_t kNothing = -1;

// Numbers of a pool, the lowest free one first.
class NumberPool {
 public:
  int32_t Take() {
    if (free_.empty()) return size_++;
    const int32_t number = free_.top();
    free_.pop();
    return number;
  }
  void Free(int32_t number) { free_.push(number); }
  int32_t size() const { return size_; }

 private:
  std::priority_queue<int32_t, std::vector<int32_t>, std::greater<>> free_;
  int32_t size_ = 0;
};

class SlotScan {
 public:
  SlotScan(const Program& program, Analysis* analysis)
      : program_(program),
        shape_(program.shape),
        out_(*analysis),
        has_backward_(shape_.layers,
                      std::vector<bool>(shape_.micro_batches, false)) {
    const int32_t classes = SlotClasses(shape_);
    pools_.resize(classes + (shape_.stages > 1 ? 1 : 0));
    held_.resize(classes);
    for (int32_t layer = 0; layer < shape_.layers; ++layer) {
      const bool here = StageOf(shape_, layer) == program.stage;
      out_.pool_of.push_back(here ? SlotClassOf(shape_, layer) : classes);
    }
    const std::vector<int32_t> none(shape_.micro_batches, kNothing);
    out_.slot_of.assign(shape_.layers, none);
    out_.held_of.assign(shape_.layers, none);
    out_.boundary_of.assign(ChunkOf(shape_, shape_.layers - 1) + 1, none);
    for (const Instruction& i : program.instructions) {
      if (i.op == Op::kBackward || i.op == Op::kBackwardWeight) {
        has_backward_[i.layer][i.micro_batch] = true;
      }
    }
  }

  void Run() {
    if (!shape_.copies.empty()) ScanCopies();
    for (const Instruction& i : program_.instructions) {
      if (i.op == Op::kForward) Forward(i.layer, i.micro_batch);
      if (i.op == Op::kLoss) Loss(i);
      if (i.op == Op::kBackward) Backward(i.layer, i.micro_batch);
      if (i.op == Op::kBackwardInput) Hold(i.layer, i.micro_batch);
      if (i.op == Op::kBackwardWeight) LetGo(i.layer, i.micro_batch);
      if (i.op == Op::kSend) Send(i);
      if (i.op == Op::kRecv) Receive(i);
    }
    for (const NumberPool& pool : pools_) out_.slots.push_back(pool.size());
    for (const NumberPool& pool : held_) out_.held.push_back(pool.size());
    out_.boundaries = boundaries_.size();
  }

 private:
  // The one that has been free for longest is the first whose last user is
  // through.
  void ScanCopies() {
    std::vector<std::deque<int32_t>> free;  // by class
    for (const int32_t copies : shape_.copies) {
      std::deque<int32_t>& numbers = free.emplace_back();
      for (int32_t c = 0; c < copies; ++c) numbers.push_back(c);
    }
    // By set of planes and slab.
    std::array<std::vector<int32_t>, kPlaneSets> at;
    at.fill(std::vector<int32_t>(shape_.slabs, kNothing));
    for (const Instruction& i : program_.instructions) {
      std::vector<int32_t>& of = out_.copies_of.emplace_back();
      if (!IsOfPlanes(i)) {
        for (const PlaneUse& use : PlanesUsed(shape_, i)) {
          const bool home = CopyClassOf(shape_, use.planes, use.slab) < 0;
          of.push_back(home ? kNothing
                            : at[static_cast<size_t>(use.planes)][use.slab]);
        }
        continue;
      }
      int32_t& number = at[static_cast<size_t>(PlaneSetOf(i))][i.slab];
      std::deque<int32_t>& numbers =
          free[CopyClassOf(shape_, PlaneSetOf(i), i.slab)];
      if (i.op == Op::kFetch || i.op == Op::kTake) {
        DELINK_CHECK(!numbers.empty()) << "no copy is free";
        number = numbers.front();
        numbers.pop_front();
      }
      of.push_back(number);
      if (i.op == Op::kRelease) numbers.push_back(number);
    }
  }

  void TakeSlot(int32_t layer, int32_t m) {
    int32_t& slot = out_.slot_of[layer][m];
    DELINK_CHECK_EQ(slot, kNothing);
    slot = pools_[out_.pool_of[layer]].Take();
  }
  void FreeSlot(int32_t layer, int32_t m) {
    DELINK_CHECK_NE(out_.slot_of[layer][m], kNothing);
    pools_[out_.pool_of[layer]].Free(out_.slot_of[layer][m]);
  }
  int32_t& BoundaryOf(int32_t layer, int32_t m) {
    return out_.boundary_of[ChunkOf(shape_, layer)][m];
  }

  void Forward(int32_t layer, int32_t m) {
    if (layer == 0) TakeSlot(0, m);
    TakeSlot(layer + 1, m);
    if (!has_backward_[layer][m]) FreeSlot(layer, m);
  }
  void Loss(const Instruction& loss) {
    FreeSlot(loss.layer, loss.micro_batch);
    if (HasGradients(loss)) {
      BoundaryOf(loss.layer, loss.micro_batch) = boundaries_.Take();
    }
  }
  void Backward(int32_t layer, int32_t m) {
    FreeSlot(layer, m);
    if (layer == 0) boundaries_.Free(BoundaryOf(0, m));
  }
  void Hold(int32_t layer, int32_t m) {
    out_.held_of[layer][m] = held_[SlotClassOf(shape_, layer)].Take();
  }
  void LetGo(int32_t layer, int32_t m) {
    held_[SlotClassOf(shape_, layer)].Free(out_.held_of[layer][m]);
    FreeSlot(layer, m);
  }
  void Receive(const Instruction& i) {
    if ((i.flags & kOfGradient) != 0) {
      BoundaryOf(i.layer - 1, i.micro_batch) = boundaries_.Take();
    } else {
      TakeSlot(i.layer, i.micro_batch);
    }
  }
  void Send(const Instruction& i) {
    const bool gradient = (i.flags & kOfGradient) != 0;
    Instruction& before = sent_[gradient ? 1 : 0];
    if (before.layer >= 0 && gradient) {
      boundaries_.Free(BoundaryOf(before.layer, before.micro_batch));
    } else if (before.layer >= 0) {
      FreeSlot(before.layer, before.micro_batch);
    }
    before = i;
  }

  const Program& program_;
  const ProgramShape& shape_;
  Analysis& out_;
  std::vector<std::vector<bool>> has_backward_;
  std::vector<NumberPool> pools_, held_;
  NumberPool boundaries_;
  Instruction sent_[2];  // the last input, the last gradient
};

}  // namespace

void ScanSlots(const Program& program, Analysis* analysis) {
  SlotScan(program, analysis).Run();
}

}  // namespace delink
