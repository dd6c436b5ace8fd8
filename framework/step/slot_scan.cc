#include "framework/step/slot_scan.h"

#include <algorithm>
#include <cstdint>
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
        last_(program.shape.layers - 1),
        out_(*analysis),
        pools_(SlotClasses(program.shape)) {
    const ProgramShape& shape = program.shape;
    out_.slot_of.assign(shape.layers,
                        std::vector<int32_t>(shape.micro_batches, kNothing));
    out_.boundary_of.assign(shape.micro_batches, kNothing);
    has_backward_ = std::vector<std::vector<bool>>(
        shape.layers, std::vector<bool>(shape.micro_batches, false));
    for (const Instruction& i : program.instructions) {
      if (i.op == Op::kBackward) has_backward_[i.layer][i.micro_batch] = true;
    }
  }

  void Run() {
    for (const Instruction& i : program_.instructions) {
      if (i.op == Op::kForward) Forward(i.layer, i.micro_batch);
      if (i.op == Op::kLoss) Loss(i);
      if (i.op == Op::kBackward) Backward(i.layer, i.micro_batch);
    }
    for (const NumberPool& pool : pools_) out_.slots.push_back(pool.size());
    out_.boundaries = boundaries_.size();
  }

 private:
  NumberPool& PoolOf(int32_t layer) {
    return pools_[SlotClassOf(program_.shape, layer)];
  }
  void Take(int32_t layer, int32_t m) {
    DELINK_CHECK_EQ(out_.slot_of[layer][m], kNothing);
    out_.slot_of[layer][m] = PoolOf(layer).Take();
  }
  void Free(int32_t layer, int32_t m) {
    DELINK_CHECK_NE(out_.slot_of[layer][m], kNothing);
    PoolOf(layer).Free(out_.slot_of[layer][m]);
  }

  void Forward(int32_t layer, int32_t m) {
    if (layer == 0) Take(0, m);
    Take(layer + 1, m);
    if (!has_backward_[layer][m]) Free(layer, m);
  }
  void Loss(const Instruction& loss) {
    Free(last_, loss.micro_batch);
    if (HasGradients(loss)) {
      out_.boundary_of[loss.micro_batch] = boundaries_.Take();
    }
  }
  void Backward(int32_t layer, int32_t m) {
    Free(layer, m);
    if (layer == 0) boundaries_.Free(out_.boundary_of[m]);
  }

  const Program& program_;
  const int32_t last_;
  Analysis& out_;
  std::vector<std::vector<bool>> has_backward_;
  std::vector<NumberPool> pools_;
  NumberPool boundaries_;
};

}  // namespace

void ScanSlots(const Program& program, Analysis* analysis) {
  SlotScan(program, analysis).Run();
}

}  // namespace delink
