// Var and Tape: the ops of one visit, recorded so that they can be replayed
// backwards.
//
// An op is a function on Vars. It checks shapes, takes its output from the
// tape, calls a forward kernel and records how to go back:
//
//   Var Gelu(Var x) {
//     Tape& tape = x.tape();
//     const Var y = tape.Output(x.shape(), x.dtype());
//     ... forward kernel on tape.stream() ...
//     tape.Record({.name = "gelu", .inputs = {x}, .outputs = {y},
//                  .saves = {x},
//                  .by_token = true,
//                  .input = [=](Backward& b) {
//                    const Tensor dx = b.NewGrad(x);
//                    ... backward kernel: dx from b.grad(y), x.value() ...
//                  }});
//     return y;
//   }
//
// Rules of the game
// - Backward may read the values of what was saved only: all else is gone by
//   then. It asks Vars for them when it runs; they may have moved.
// - Gradients of activations are written whole (`=`) into NewGrad; the tape
//   adds contributions up. Gradients of parameters are the weight closure's
//   business (framework/module/param.h: `=` the first time, then `+=`).
// - The weight closure may run long after the input closure, when other visits
//   have been at work in the same scratch memory. The one hands nothing to the
//   other; both read what was saved and the gradients of the op's outputs.
// - An op asks for memory in an order that depends on shapes only.
// - Nothing here waits for the device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "framework/autograd/column_cut.h"
#include "framework/autograd/visit_group.h"
#include "framework/autograd/visit_memory.h"
#include "framework/base/check.h"
#include "framework/base/rng.h"
#include "framework/device/backend.h"
#include "framework/tensor/tensor.h"

namespace delink {

class Tape;
class Backward;

// A value of the visit under way. A small handle, copied freely; valid until
// its tape begins another forward.
class Var {
 public:
  Var() = default;
  Tape& tape() const { return *tape_; }
  const Tensor& value() const;
  const Shape& shape() const { return value().shape(); }
  int64_t dim(int axis) const { return value().dim(axis); }
  DType dtype() const { return value().dtype(); }
  void* data() const { return value().data(); }
  // Whether anything upstream wants its gradient.
  bool needs_grad() const;
  bool defined() const { return tape_ != nullptr; }

 private:
  friend class Tape;
  friend class Backward;
  Var(Tape* tape, int id) : tape_(tape), id_(id) {}
  Tape* tape_ = nullptr;
  int id_ = -1;
};

// What an op leaves for backward. Both closures are optional.
struct OpRecord {
  const char* name = "";
  std::vector<Var> inputs;
  std::vector<Var> outputs;
  // What closures read, among inputs, outputs and tape.Output(...)s: the weight
  // closure alone, and any of those below.
  std::vector<Var> weight_saves, saves;
  // Each token of the outputs is made of the same token of the inputs, and of
  // what a state knows of those before (Tape::State). A layer of such ops alone
  // generates token by token; any other is computed from the first token on.
  bool by_token = false;
  // Columns of the outputs are made of all of the inputs, as by a product of
  // matrices. Else, of inputs of which a rank has some (Tape::columns), outputs
  // of as many columns have the same ones, and outputs of as many as the first
  // of stacked matrices has those of it.
  bool mixes_columns = false;
  std::function<void(Backward&)> input;   // gradients of inputs
  std::function<void(Backward&)> weight;  // gradients of parameters
  // Writes the value of the only output once more, with the same bits (or those
  // that the op says it may have), from `saves`. For what is cheap beside a
  // matrix product: where others save that output it is not kept, but made
  // again when backward first reads it.
  std::function<void(Backward&, const Tensor& y)> remake;
  double flops = 0;           // of forward
  double backward_flops = 0;  // of both closures
  double weight_flops = 0;    // of those, the weight closure's
};

// What a module keeps from one visit to the next while a sequence is generated
// (a key/value cache). It begins with the first token of a sequence.
class VisitState {
 public:
  virtual ~VisitState() = default;
};

// Those of a layer, in the order in which its modules ask for them. Owned by
// whoever drives the visits.
struct VisitStates {
  int64_t positions = 0;  // the most tokens that the sequence may have
  std::vector<std::unique_ptr<VisitState>> made;
};

// Sums that a step collects on the device; one for each step.
struct LossRecord {
  double loss_sum = 0;  // over the counted targets, in nats
  int64_t tokens = 0;   // counted targets
  double z_sum = 0;     // of the z-loss, which loss_sum is without
};

// What the executor gives a visit. Pointers are device memory unless said
// otherwise; they outlive the visit.
struct VisitInputs {
  bool training = true;              // dropout is on
  bool deterministic = true;         // false: kernels that are faster so may
                                     // have other bits each time
  bool remake = true;                // false: what OpRecord::remake could make
                                     // again is kept
  const RngKey* step_key = nullptr;  // folds (seed, step)
  const int64_t* samples = nullptr;  // [B] global sample numbers
  const int32_t* targets = nullptr;  // [B, T]; -1: not counted
  LossRecord* loss = nullptr;        // added to by the loss
  // [B, T]: the position of each token, where that is not first_position + t:
  // where rows hold several documents its place in its own, and of each part of
  // a visit (VisitGroups).
  const int32_t* positions = nullptr;
  int64_t first_position = 0;  // of token 0 (generation)
  // Where rows hold several documents: the place of each in its own, [B, T], of
  // all tokens of the row, also those that other ranks of the context have.
  // Null: a row is one document.
  const int32_t* documents = nullptr;
  // [T]: where in its row each token of this rank stands, where that is not
  // first_position + t (VisitGroups::context).
  const int32_t* places = nullptr;
  // B, where an activation may be a part of [B, T] tokens
  // (VisitGroups::sequence).
  int64_t sequences = 0;
  // Of generation token by token: the visit has only the tokens from
  // first_position on. A host object; null: the visit has all tokens.
  VisitStates* states = nullptr;
};

// y[n] += x[n]; y may be x. Supplied by whoever knows the kernels.
using AccumulateFn = void (*)(Device& device, Stream& stream, DType dtype,
                              void* y, const void* x, int64_t n);

class Tape {
 public:
  struct Env {
    Device* device = nullptr;
    Stream* stream = nullptr;
    AccumulateFn accumulate = nullptr;
    VisitGroups groups = {};
  };
  Tape(const Env& env, VisitMemory& memory) : env_(env), memory_(&memory) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // ---- for those who drive a visit -------------------------------------
  // Starts a forward: forgets everything before it. `phase` is kEval, kForward
  // or kRecord.
  void BeginForward(Phase phase, const VisitInputs& inputs);
  // A value that lives outside the visit: the layer's input.
  Var Input(const Tensor& value, bool needs_grad);
  // Ends forward: `y` is the layer's output. With `boundary` defined, its value
  // is there on return.
  void Finish(Var y, const Tensor& boundary);
  // Runs the ops backwards from dL/dy, which on return may have been
  // overwritten. For a loss, `dy` is not defined. If `x` needs a gradient it is
  // in `dx` on return; dx may be the memory of dy.
  void RunBackward(Var y, const Tensor& dy, Var x, const Tensor& dx);
  // The same, bit for bit, in two halves. The first gives `dx` and keeps the
  // gradients that weight closures read; parameters may be bound without
  // gradients. The second, which may come at any time after it, gives the
  // gradients of parameters: it needs what forward has saved (the layer's input
  // with it), what the first half has kept, and the weights.
  void RunBackwardInput(Var y, const Tensor& dy, Var x, const Tensor& dx);
  void RunBackwardWeight();

  double flops() const { return flops_; }
  double backward_flops() const { return backward_flops_; }
  double weight_flops() const { return weight_flops_; }
  // Whether all ops of the forward say so (OpRecord::by_token).
  bool by_token() const { return by_token_; }

  // ---- for ops -----------------------------------------------------------
  Device& device() const { return *env_.device; }
  Stream& stream() const { return *env_.stream; }
  const VisitInputs& inputs() const { return inputs_; }
  const VisitGroups& groups() const { return env_.groups; }
  // The tokens of the visit, of all ranks of groups().tensor together.
  int64_t tokens() const;
  // Which columns of `x` are here, null where all are; and what says so, of the
  // output of a product of which a rank of groups().tensor has some.
  const ColumnCut* columns(Var x) const { return nodes_[x.id_].columns.get(); }
  void SetColumns(Var y, ColumnCut columns);
  // Whether a backward will follow.
  bool recording() const { return phase_ == Phase::kRecord; }
  // A new value, not initialised. It needs a gradient if an input of the op
  // that records it does.
  Var Output(const Shape& shape, DType dtype);
  // A new value in the memory of `x`, for an op that overwrites it: the output
  // of an op that nobody saves, now or later, or reads any more.
  Var Overwrite(Var x);
  // A new value in the memory of `x`, for an op that hands it on as it is.
  Var Alias(Var x);
  // Memory for the op under way only.
  Tensor Scratch(const Shape& shape, DType dtype);
  // For a module that keeps a state, where inputs().states is given: the one
  // that it got at this call of the visit before, at first a new S(args...).
  // Modules ask in the same order at every visit.
  template <typename S, typename... Args>
  S& State(Args&&... args) {
    DELINK_CHECK(inputs_.states != nullptr) << "no state is kept";
    auto& made = inputs_.states->made;
    if (states_asked_ == made.size()) {
      made.push_back(std::make_unique<S>(std::forward<Args>(args)...));
    }
    S* const state = dynamic_cast<S*>(made[states_asked_++].get());
    DELINK_CHECK(state != nullptr) << "the state is another module's";
    return *state;
  }
  // Called by every op, in every phase. `trains`: the op has parameters, so its
  // outputs need gradients even where its inputs do not.
  void Record(OpRecord op, bool trains = false);

 private:
  friend class Var;
  friend class Backward;
  struct Node {
    Tensor value;
    int block = -1;  // of VisitMemory; -1: lives outside
    bool needs_grad = false;
    int grad = -1;        // index into grads_
    int remaker = -1;     // the op that makes the value again; -1: it is kept
    bool remade = false;  // in backward: `block` is one of that phase
    std::shared_ptr<const ColumnCut> columns;
  };
  // Gradient memory, possibly held by several nodes.
  struct Grad {
    Tensor value;
    int block = -1;
    int holders = 0;
  };

  void HandOnColumns(const OpRecord& op);
  void Save(Var x);
  void RunInputs(Phase phase, Var y, const Tensor& dy, Var x, const Tensor& dx);
  bool IsReady(const OpRecord& op) const;
  void RunOp(const OpRecord& op, bool whole, Backward& backward);
  static void RunWeight(const OpRecord& op, Backward& backward);
  void Remake(int node, Backward& backward);
  void KeepGrad(Node& node);
  void ReleaseGrad(Node& node);
  void AddPending(Node& node, const Tensor& contribution, int block, int grad);
  int TakeGrad(const Tensor& like);

  Env env_;
  VisitMemory* memory_;
  VisitInputs inputs_;
  Phase phase_ = Phase::kEval;
  std::vector<Node> nodes_;
  std::vector<OpRecord> ops_;
  std::vector<Grad> grads_;
  double flops_ = 0;
  double backward_flops_ = 0;
  double weight_flops_ = 0;
  bool by_token_ = true;
  size_t states_asked_ = 0;
};

// What closures see of a backward under way.
class Backward {
 public:
  // Gradient of an output; read only.
  Tensor grad(Var y) const;
  // Where to write (`=`, all of it) a contribution to the gradient of `x`,
  // which must need one. Once per op and input.
  Tensor NewGrad(Var x);
  // As NewGrad, but it begins as the gradient of `y`, the op's output, which is
  // then the closure's to change: the same memory where nobody else holds it.
  // Not for ops whose weight closure reads the gradient of `y`.
  Tensor ReuseGrad(Var y, Var x);
  // For a kernel that adds its contribution to the gradient of `x` to what has
  // arrived of it so far: it is to write their sum to `sum`. `before` is not
  // defined where nothing has arrived, and may be the memory of `sum`. Instead
  // of NewGrad.
  struct Addition {
    Tensor before, sum;
  };
  Addition AddToGrad(Var x);
  // The contribution to the gradient of `x` is the gradient of `y`, unchanged;
  // no copy is made where none is needed.
  void PassGrad(Var y, Var x);
  // The contribution is already computed, in the saved value `dx`.
  void UseGrad(Var dx, Var x);
  // Memory until the closure returns.
  Tensor Scratch(const Shape& shape, DType dtype);
  Stream& stream() const { return *tape_->env_.stream; }
  Device& device() const { return *tape_->env_.device; }

 private:
  friend class Tape;
  explicit Backward(Tape& tape) : tape_(&tape) {}
  struct Pending {
    int node;
    Tensor value;
    int block;
    int grad;  // held until it is added; -1: memory of its own
  };
  // Of an input whose gradient the closure under way is about to give.
  Tape::Node& InputNode(Var x);

  Tape* tape_;
  const OpRecord* weight_of_ = nullptr;  // whose weight closure is under way
  std::vector<Pending> pending_;         // to be added once the closure returns
};

}  // namespace delink
