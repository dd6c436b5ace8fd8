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
//                  .own_rows = true,
//                  .input = [=](Backward& b) {
//                    const Tensor dx = b.NewGrad(x);
//                    ... backward kernel: dx from b.grad(y), x.value() ...
//                  }});
//     return y;
//   }
//
// Rules
// - Backward may read only saved values; all others are gone by then. It asks
//   Vars for them when it runs, because they may have moved.
// - Closures write gradients of activations whole (`=`) into NewGrad; the tape
//   adds up contributions. The weight closure writes gradients of parameters
//   (framework/module/param.h: `=` the first time, then `+=`).
// - The weight closure may run long after the input closure, after other visits
//   have used the same scratch memory. So neither hands anything to the other;
//   both read saved values and the gradients of the op's outputs.
// - An op asks for memory in an order that depends on shapes only.
// - Nothing here waits for the device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
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
  // The inputs, outputs and tape.Output(...)s that closures read: those that
  // only the weight closure reads, and those that any closure below reads.
  std::vector<Var> weight_saves, saves;
  // Each token of the outputs depends only on the same token of the inputs, and
  // on what a state keeps of earlier ones (Tape::State). A layer generates
  // token by token if all of its ops are such; else all tokens are computed.
  bool by_token = false;
  // Under VisitGroups::sequence the op takes a rank's own rows: it needs no
  // other tokens, or gets what it needs of them from the other ranks itself.
  // The tape refuses to give these rows to another op, which is to take all
  // rows. The flags are independent:
  //   both           norms, linear, dropout
  //   own_rows only  rows of experts whose capacity tokens compete for
  //   by_token only  attention over a cache; rotary, by the places of all
  //                  tokens
  //   neither        attention
  bool own_rows = false;
  // Columns of the outputs depend on all columns of the inputs, as in a matrix
  // product. If not, and a rank has only some columns of an input
  // (Tape::columns), an output with as many columns has the same ones; an
  // output with as many as the first of stacked matrices has that matrix's.
  bool mixes_columns = false;
  std::function<void(Backward&)> input;   // gradients of inputs
  std::function<void(Backward&)> weight;  // gradients of parameters
  // Computes the value of the only output again from `saves`, with the same
  // bits (or others that the op permits). For ops that are cheap beside a
  // matrix product: an output that others save is then not kept, but made again
  // when backward first reads it.
  std::function<void(Backward&, const Tensor& y)> remake;
  // If given, `remake` only begins this, and here it ends: other closures may
  // run between both, while other ranks send the value.
  std::function<void(Backward&)> end_remake;
  // Values whose remake begins behind the input closure, because closures that
  // come later read them.
  std::vector<Var> prefetch;
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

// The states of a layer, in the order in which its modules ask for them. Owned
// by the caller that drives the visits.
struct VisitStates {
  int64_t positions = 0;  // the most tokens that the sequence may have
  std::vector<std::unique_ptr<VisitState>> made;
};

// Sums that a step collects on the device; one for each step.
struct LossRecord {
  double loss_sum = 0;  // over the counted targets, in nats
  int64_t tokens = 0;   // counted targets
  double z_sum = 0;     // of the z-loss, which is not in loss_sum
  double lost = 0;      // choices of experts that found no room, so that other
                        // numbers are wrong (VisitInputs::expert_room)
};

// Is given values of a visit that looks for numbers that are not finite.
// `what`: "input of the router".
using InspectFn = std::function<void(std::string_view what, const Tensor& x)>;

// What the executor gives a visit. Pointers are device memory unless said
// otherwise; they outlive the visit.
struct VisitInputs {
  bool training = true;              // dropout is on
  bool deterministic = true;         // false: faster kernels, whose results
                                     // may have other bits each time
  bool remake = true;                // false: keeps values that
                                     // OpRecord::remake could make again
  const RngKey* step_key = nullptr;  // folds (seed, step)
  const int64_t* samples = nullptr;  // [B] global sample numbers
  const int32_t* targets = nullptr;  // [B, T]; -1: not counted
  // Whether training counts all targets. Memory is planned for it: a capacity
  // then bounds the rows of experts (layers/ops/route.h).
  bool all_counted = false;
  LossRecord* loss = nullptr;  // added to by the loss
  double* sums = nullptr;      // the layer's (Tape::Sums), or null
  // Whether the forward runs again for the visit's backward (recompute). It is
  // then to ask for the same memory and exchanges, but to add nothing to sums
  // of the step: the first forward did.
  bool again = false;
  // [1]: the counted targets of the micro-batch, all rows whole. All ranks that
  // work on it (tensor, context, pipeline) have the same number. Null if
  // `targets` is.
  const int64_t* counted_targets = nullptr;
  // [B, T]: the position of each token: its place in its document if rows hold
  // several, else in its row. Null: it is first_position + t, because rows are
  // whole and have one document.
  const int32_t* positions = nullptr;
  int64_t first_position = 0;  // of token 0 (generation)
  // [B, T], if rows hold several documents: the place of each token in its
  // document, for all tokens of the row, also those of other context ranks.
  // Null: a row is one document.
  const int32_t* documents = nullptr;
  // [T]: the place of each token of this rank in its row, if that is not
  // first_position + t (VisitGroups::context).
  const int32_t* places = nullptr;
  // B, because an activation may hold only a part of the [B, T] tokens
  // (VisitGroups::sequence).
  int64_t sequences = 0;
  // 0: ranks of groups().expert gather their tokens. Else they send them to the
  // ranks whose experts these chose, with room for so many times a rank's mean
  // share of the choices.
  double expert_room = 0;
  // These exchanges run while the rank computes other parts of the visit.
  bool expert_overlap = false;
  // For generation token by token: the visit has only the tokens from
  // first_position on. A host object; null: the visit has all tokens.
  VisitStates* states = nullptr;
  const InspectFn* inspect = nullptr;  // a host object; null: not a diagnosis
};

// y[n] += x[n]; y may be x. Supplied by code that knows the kernels.
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

  // ---- for code that drives a visit ------------------------------------
  // Starts a forward: forgets everything before it. `phase` is kEval, kForward
  // or kRecord.
  void BeginForward(Phase phase, const VisitInputs& inputs);
  // A value that lives outside the visit: the layer's input.
  Var Input(const Tensor& value, bool needs_grad);
  // Ends forward: `y` is the layer's output. If `boundary` is defined, it has
  // the value of `y` on return.
  void Finish(Var y, const Tensor& boundary);
  // Runs the ops backwards from dL/dy, which on return may have been
  // overwritten. For a loss, `dy` is not defined. If `x` needs a gradient it is
  // in `dx` on return; dx may be the memory of dy.
  void RunBackward(Var y, const Tensor& dy, Var x, const Tensor& dx);
  // The same, bit for bit, in two halves. The first computes `dx` and keeps the
  // gradients that weight closures read; parameters may be bound without
  // gradients. The second may run at any later time. It computes the gradients
  // of parameters from what forward has saved (including the layer's input),
  // what the first half has kept, and the weights.
  void RunBackwardInput(Var y, const Tensor& dy, Var x, const Tensor& dx);
  void RunBackwardWeight();

  double flops() const { return flops_; }
  double backward_flops() const { return backward_flops_; }
  double weight_flops() const { return weight_flops_; }
  // Whether all ops of the forward are OpRecord::by_token.
  bool by_token() const { return by_token_; }

  // ---- for ops -----------------------------------------------------------
  Device& device() const { return *env_.device; }
  Stream& stream() const { return *env_.stream; }
  const VisitInputs& inputs() const { return inputs_; }
  const VisitGroups& groups() const { return env_.groups; }
  // The tokens of the visit, of all ranks of groups().tensor together.
  int64_t tokens() const;
  // Which columns of `x` this rank has; null: all. SetColumns says so for the
  // output of a product, if a rank of groups().tensor has only some of them.
  const ColumnCut* columns(Var x) const { return nodes_[x.id_].columns.get(); }
  void SetColumns(Var y, ColumnCut columns);
  // Whether a backward will follow.
  bool recording() const { return phase_ == Phase::kRecord; }
  // A new value, not initialised. It needs a gradient if an input of the op
  // that records it does.
  Var Output(const Shape& shape, DType dtype);
  // A new value in the memory of `x`, for an op that overwrites it. `x` must be
  // an op's output that nobody saves, now or later, or reads again.
  Var Overwrite(Var x);
  // A new value in the memory of `x`, for an op that passes it on unchanged.
  Var Alias(Var x);
  // Memory for the op under way only.
  Tensor Scratch(const Shape& shape, DType dtype);
  // The state of a module that keeps one, if inputs().states is given: the one
  // that this call returned in the visit before, at first a new S(args...).
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
  // `count` sums of the step over all visits of the layer; null if this visit
  // is to add nothing, because it is no training, or another rank adds the
  // same. A backward may add to them, and a forward unless inputs().again. Ops
  // ask for them in forward, in the same order at every visit.
  double* Sums(int64_t count);
  // How many this forward has asked for.
  int64_t sums_asked() const { return sums_asked_; }
  // In a diagnosis, has the host check that `x` is finite, before it checks the
  // layer's output. The rows of `x` are tokens.
  void Inspect(std::string_view what, Var x) const;
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
    int grad = -1;         // index into grads_
    int remaker = -1;      // the op that makes the value again; -1: it is kept
    bool remade = false;   // in backward: `block` is one of that phase
    bool arrives = false;  // OpRecord::end_remake is to be called
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
  void BeginRemake(Node& node, Backward& backward);
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
  int64_t sums_asked_ = 0;
};

// The interface of a running backward to the closures of ops.
class Backward {
 public:
  // Gradient of an output; read only.
  Tensor grad(Var y) const;
  // Where to write (`=`, all of it) a contribution to the gradient of `x`,
  // which must need one. Once per op and input.
  Tensor NewGrad(Var x);
  // As NewGrad, but filled with the gradient of `y`, the op's output, for the
  // closure to change. It is the same memory if nobody else holds that, else a
  // copy. Not for ops whose weight closure reads the gradient of `y`.
  Tensor ReuseGrad(Var y, Var x);
  // Instead of NewGrad, for a kernel that itself adds its contribution to what
  // has arrived of the gradient of `x` (`before`): it writes the sum to `sum`.
  // `before` is not defined if nothing has arrived, and may be the memory of
  // `sum`.
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
  // The node of an input whose gradient the running closure is about to write.
  Tape::Node& InputNode(Var x);

  Tape* tape_;
  const OpRecord* weight_of_ = nullptr;  // the op whose weight closure runs
  std::vector<Pending> pending_;         // to be added once the closure returns
};

}  // namespace delink
