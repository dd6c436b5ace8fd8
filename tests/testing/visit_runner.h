// Drives visits of one layer, or of any function of a Var, on the CPU, over
// either kind of visit memory. With kPlanned the memory is measured on the meta
// device first, and before each pass everything that nobody may read is filled
// with NaN: workspace always, the slot when it is about to be recorded.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "framework/autograd/tape.h"
#include "framework/tensor/buffer.h"
#include "tests/testing/noted_group.h"

namespace delink::testing {

enum class MemoryMode { kHeap, kPlanned };

inline const char* ToString(MemoryMode mode) {
  return mode == MemoryMode::kHeap ? "heap" : "planned";
}

class VisitRunner {
 public:
  // Returns the output, or an undefined Var when it is a loss.
  using Layer = std::function<Var(Var)>;
  struct Options {
    Device* device = nullptr;  // of kind cpu
    MemoryMode memory = MemoryMode::kHeap;
    Layer layer;
    Shape x;
    DType x_dtype = DType::kF64;
    bool x_needs_grad = true;
    bool loss = false;
    // Points the parameters somewhere, gradients included; before measuring.
    std::function<void()> bind = [] {};
    // Like those of the visits to come, in what decides shapes.
    VisitInputs inputs;
    VisitGroups groups;
  };
  explicit VisitRunner(const Options& options);

  // y is not defined for a loss.
  void Forward(Phase phase, const VisitInputs& inputs, const Tensor& x,
               const Tensor& y);
  // After a Forward of kRecord. dy, which is overwritten, is not defined for a
  // loss; dx when x needs no gradient. dx may be dy.
  void Backward(const Tensor& dy, const Tensor& dx);
  // The same in two halves.
  void BackwardInput(const Tensor& dy, const Tensor& dx);
  void BackwardWeight();

  // Of the last forward; with kPlanned its memory may be in use again.
  Var output() const { return y_; }
  Tape& tape() { return *tape_; }
  const VisitPlan& plan() const { return plan_; }
  // With kPlanned, by phase, what the meta device's visits asked of
  // groups.tensor, then of groups.expert.
  using Exchanges = std::array<std::vector<Exchange>, kPhases>;
  const Exchanges& exchanges() const { return exchanges_; }

 private:
  void Measure();

  Options options_;
  VisitPlan plan_;
  Exchanges exchanges_;
  Buffer slot_, held_, workspace_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<VisitMemory> memory_;
  PlannedMemory* planned_ = nullptr;  // memory_, when it is
  std::unique_ptr<Tape> tape_;
  Var x_, y_;
};

}  // namespace delink::testing
