#include "framework/step/slot_scan.h"

#include <algorithm>
#include <cstdint>
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
  void ScanCopies() {
    std::vector<NumberPool> copies(shape_.copies.size());
    std::vector<int32_t> at(shape_.slabs, kNothing);  // by slab
    for (const Instruction& i : program_.instructions) {
      std::vector<int32_t>& of = out_.copies_of.emplace_back();
      if (i.op == Op::kFetch || i.op == Op::kRelease) {
        const int32_t copy_class = CopyClassOf(shape_, i.slab);
        if (copy_class < 0) continue;
        if (i.op == Op::kFetch) at[i.slab] = copies[copy_class].Take();
        of.push_back(at[i.slab]);
        if (i.op == Op::kRelease) copies[copy_class].Free(at[i.slab]);
      } else if (IsVisit(i)) {
        for (const int32_t slab : shape_.slabs_of_layer[i.layer]) {
          of.push_back(CopyClassOf(shape_, slab) < 0 ? kNothing : at[slab]);
        }
      }
    }
    for (size_t c = 0; c < copies.size(); ++c) {
      DELINK_CHECK_LE(copies[c].size(), shape_.copies[c]);
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
