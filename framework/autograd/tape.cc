#include "framework/autograd/tape.h"

#include <utility>

#include "framework/base/check.h"

namespace delink {
namespace {

// Checks that no input has as many tokens as the layer's input: they would be
// the rank's own.
void CheckRows(const OpRecord& op, const Shape& own) {
  for (const Var& x : op.inputs) {
    const Shape& shape = x.shape();
    const bool all = own.rank() != 3 || shape.rank() != 3 ||
                     shape[0] != own[0] || shape[1] != own[1];
    DELINK_CHECK(all) << op.name
                      << " is given a rank's own rows and does not say that it "
                         "takes them (OpRecord::own_rows): it is to take all "
                         "rows (ops::GatherRows)";
  }
}

}  // namespace

const Tensor& Var::value() const { return tape_->nodes_[id_].value; }
bool Var::needs_grad() const { return tape_->nodes_[id_].needs_grad; }

void Tape::BeginForward(Phase phase, const VisitInputs& inputs) {
  DELINK_CHECK(phase == Phase::kEval || phase == Phase::kForward ||
               phase == Phase::kRecord);
  phase_ = phase;
  inputs_ = inputs;
  nodes_.clear();
  ops_.clear();
  grads_.clear();
  flops_ = 0;
  backward_flops_ = 0;
  weight_flops_ = 0;
  by_token_ = true;
  states_asked_ = 0;
  sums_asked_ = 0;
  memory_->Begin(phase);
}

Var Tape::Input(const Tensor& value, bool needs_grad) {
  nodes_.push_back({.value = value, .needs_grad = needs_grad});
  return Var(this, static_cast<int>(nodes_.size()) - 1);
}

Var Tape::Output(const Shape& shape, DType dtype) {
  const VisitMemory::Block block =
      memory_->Take(shape.elements() * SizeOf(dtype));
  nodes_.push_back(
      {.value = Tensor(block.data, dtype, shape), .block = block.id});
  return Var(this, static_cast<int>(nodes_.size()) - 1);
}

Var Tape::Overwrite(Var x) {
  const Node node = nodes_[x.id_];
  DELINK_CHECK_GE(node.block, 0) << "the input of a layer is not to change";
  for (const OpRecord& op : ops_) {
    for (const std::vector<Var>* saves : {&op.weight_saves, &op.saves}) {
      for (const Var& saved : *saves) {
        DELINK_CHECK_NE(nodes_[saved.id_].block, node.block)
            << op.name << " saved what is to be overwritten";
      }
    }
  }
  nodes_.push_back({.value = node.value, .block = node.block});
  return Var(this, static_cast<int>(nodes_.size()) - 1);
}

Var Tape::Alias(Var x) {
  // If x is made again, so is this, by the same op.
  const Node node = nodes_[x.id_];
  nodes_.push_back(
      {.value = node.value, .block = node.block, .remaker = node.remaker});
  return Var(this, static_cast<int>(nodes_.size()) - 1);
}

Tensor Tape::Scratch(const Shape& shape, DType dtype) {
  const VisitMemory::Block block =
      memory_->Take(shape.elements() * SizeOf(dtype));
  return {block.data, dtype, shape};
}

void Tape::Record(OpRecord op, bool trains) {
  if (env_.groups.sequence && !op.own_rows) {
    CheckRows(op, nodes_.front().value.shape());
  }
  bool needs_grad = trains;
  for (const Var& x : op.inputs) {
    const Node& node = nodes_[x.id_];
    needs_grad = needs_grad || node.needs_grad;
    if (node.block >= 0) memory_->Use(node.block);
  }
  for (const Var& y : op.outputs) nodes_[y.id_].needs_grad = needs_grad;
  if (env_.groups.tensor != nullptr && !op.mixes_columns) HandOnColumns(op);
  if (recording()) {
    for (const Var& saved : op.weight_saves) Save(saved);
    for (const Var& saved : op.saves) Save(saved);
    if (op.remake && inputs_.remake) {
      DELINK_CHECK_EQ(op.outputs.size(), size_t{1}) << op.name;
      nodes_[op.outputs[0].id_].remaker = static_cast<int>(ops_.size());
    }
  }
  flops_ += op.flops;
  backward_flops_ += op.backward_flops;
  weight_flops_ += op.weight_flops;
  by_token_ = by_token_ && op.by_token;
  memory_->Tick();
  if (recording()) ops_.push_back(std::move(op));
}

int64_t Tape::tokens() const {
  const Shape& shape = nodes_.front().value.shape();
  if (shape.rank() < 3) return shape.elements();  // of a prologue
  const int64_t rows = shape[0] * shape[1];
  return env_.groups.sequence ? rows * env_.groups.tensor->size() : rows;
}

double* Tape::Sums(int64_t count) {
  const int64_t first = sums_asked_;
  sums_asked_ += count;
  const VisitGroup* const tensor = env_.groups.tensor;
  const bool another =
      tensor != nullptr && !env_.groups.sequence && tensor->rank() > 0;
  if (!inputs_.training || another) return nullptr;
  return inputs_.sums != nullptr ? inputs_.sums + first : nullptr;
}

void Tape::Inspect(std::string_view what, Var x) const {
  if (inputs_.inspect != nullptr) (*inputs_.inspect)(what, x.value());
}

void Tape::SetColumns(Var y, ColumnCut columns) {
  DELINK_CHECK_EQ(columns.here(), y.dim(-1));
  nodes_[y.id_].columns = std::make_shared<const ColumnCut>(std::move(columns));
}

void Tape::HandOnColumns(const OpRecord& op) {
  for (const Var& x : op.inputs) {
    const std::shared_ptr<const ColumnCut> cut = nodes_[x.id_].columns;
    if (cut == nullptr) continue;
    const ColumnPiece& first = cut->pieces.front();
    for (const Var& y : op.outputs) {
      if (y.dim(-1) == cut->here()) {
        nodes_[y.id_].columns = cut;
      } else if (y.dim(-1) == first.count) {
        SetColumns(
            y,
            {{{.of = first.of, .first = first.first, .count = first.count}}});
      }
    }
  }
}

void Tape::Save(Var x) {
  const Node& node = nodes_[x.id_];
  if (node.block >= 0 && node.remaker < 0) memory_->Save(node.block);
}

void Tape::Finish(Var y, const Tensor& boundary) {
  const Node& node = nodes_[y.id_];
  if (node.block >= 0) {
    memory_->MarkOutput(node.block);
    memory_->Use(node.block);
  }
  if (!boundary.defined()) return;
  DELINK_CHECK(boundary.shape() == node.value.shape())
      << "output " << node.value.shape() << ", boundary " << boundary.shape();
  if (boundary.data() != node.value.data()) {
    env_.device->Copy(*env_.stream, boundary.data(), node.value.data(),
                      node.value.bytes());
  }
}

void Tape::RunBackward(Var y, const Tensor& dy, Var x, const Tensor& dx) {
  RunInputs(Phase::kBackward, y, dy, x, dx);
}

void Tape::RunBackwardInput(Var y, const Tensor& dy, Var x, const Tensor& dx) {
  RunInputs(Phase::kBackwardInput, y, dy, x, dx);
  phase_ = Phase::kBackwardInput;
}

void Tape::RunBackwardWeight() {
  DELINK_CHECK(phase_ == Phase::kBackwardInput) << "there was no first half";
  phase_ = Phase::kBackwardWeight;
  memory_->Begin(Phase::kBackwardWeight);
  // Values that the first half made again were in its workspace.
  for (Node& node : nodes_) node.remade = false;
  Backward backward(*this);
  for (auto op = ops_.rbegin(); op != ops_.rend(); ++op) {
    if (!op->weight || !IsReady(*op)) continue;
    for (const Var& saved : op->weight_saves) Remake(saved.id_, backward);
    for (const Var& saved : op->saves) Remake(saved.id_, backward);
    RunWeight(*op, backward);
    memory_->Tick();
  }
}

// Of kBackward, or kBackwardInput.
void Tape::RunInputs(Phase phase, Var y, const Tensor& dy, Var x,
                     const Tensor& dx) {
  DELINK_CHECK(phase_ == Phase::kRecord) << "nothing was recorded";
  memory_->Begin(phase);
  if (dy.defined()) {
    DELINK_CHECK(dy.shape() == y.shape()) << "dy " << dy.shape();
    grads_.push_back({.value = dy, .block = -1, .holders = 1});
    nodes_[y.id_].grad = static_cast<int>(grads_.size()) - 1;
  }
  Backward backward(*this);
  for (auto op = ops_.rbegin(); op != ops_.rend(); ++op) {
    RunOp(*op, phase == Phase::kBackward, backward);
  }
  if (!x.needs_grad()) return;
  const int grad = nodes_[x.id_].grad;
  if (grad < 0) {
    env_.device->FillZero(*env_.stream, dx.data(), dx.bytes());
    return;
  }
  if (grads_[grad].block >= 0) memory_->Use(grads_[grad].block);
  if (grads_[grad].value.data() != dx.data()) {
    env_.device->Copy(*env_.stream, dx.data(), grads_[grad].value.data(),
                      dx.bytes());
  }
}

// Whether an output of the op has a gradient. An op without outputs is always
// ready (a loss: its closures need none).
bool Tape::IsReady(const OpRecord& op) const {
  bool ready = op.outputs.empty();
  for (const Var& y : op.outputs) ready = ready || nodes_[y.id_].grad >= 0;
  return ready;
}

// `whole`: with the weight closure; else the gradients that it reads are kept.
// Other holders of their memory then part from it before they change it, as
// they always do.
void Tape::RunOp(const OpRecord& op, bool whole, Backward& backward) {
  if (!IsReady(op)) return;
  const bool keep = !whole && op.weight;
  for (const Var& y : op.outputs) {
    if (keep) KeepGrad(nodes_[y.id_]);
    const int grad = nodes_[y.id_].grad;
    if (grad >= 0 && grads_[grad].block >= 0) {
      memory_->Use(grads_[grad].block);
    }
  }
  if (whole) {
    for (const Var& saved : op.weight_saves) Remake(saved.id_, backward);
  }
  for (const Var& saved : op.saves) Remake(saved.id_, backward);
  if (op.input) op.input(backward);
  for (const Var& x : op.prefetch) {
    if (whole) BeginRemake(nodes_[x.id_], backward);
  }
  if (whole && op.weight) RunWeight(op, backward);
  if (!keep) {
    for (const Var& y : op.outputs) ReleaseGrad(nodes_[y.id_]);
  }
  for (const Backward::Pending& p : backward.pending_) {
    AddPending(nodes_[p.node], p.value, p.block, p.grad);
  }
  backward.pending_.clear();
  memory_->Tick();
}

void Tape::RunWeight(const OpRecord& op, Backward& backward) {
  backward.weight_of_ = &op;
  op.weight(backward);
  backward.weight_of_ = nullptr;
}

// Unless it has begun already.
void Tape::BeginRemake(Node& node, Backward& backward) {
  if (node.remaker < 0 || node.remade) return;
  const OpRecord& op = ops_[node.remaker];
  for (const Var& saved : op.saves) Remake(saved.id_, backward);
  const VisitMemory::Block block = memory_->Take(node.value.bytes());
  node.value = Tensor(block.data, node.value.dtype(), node.value.shape());
  node.block = block.id;
  node.remade = true;
  node.arrives = static_cast<bool>(op.end_remake);
  op.remake(backward, node.value);
}

// Makes sure that the value of a node is there for the op under way.
void Tape::Remake(int id, Backward& backward) {
  Node& node = nodes_[id];
  BeginRemake(node, backward);
  if (node.remade) memory_->Use(node.block);
  if (!node.arrives) return;
  const OpRecord& op = ops_[node.remaker];
  for (const Var& saved : op.saves) {
    const Node& read = nodes_[saved.id_];
    if (read.remade) memory_->Use(read.block);
  }
  op.end_remake(backward);
  node.arrives = false;
}

// For the second half of backward.
void Tape::KeepGrad(Node& node) {
  if (node.grad < 0) return;
  if (grads_[node.grad].block < 0) {
    // Memory from outside, such as dy, is not the tape's to keep.
    const int own = TakeGrad(node.value);
    env_.device->Copy(*env_.stream, grads_[own].value.data(),
                      grads_[node.grad].value.data(), node.value.bytes());
    --grads_[node.grad].holders;
    node.grad = own;
  }
  memory_->Save(grads_[node.grad].block);
}

void Tape::ReleaseGrad(Node& node) {
  if (node.grad < 0) return;
  --grads_[node.grad].holders;
  node.grad = -1;
}

int Tape::TakeGrad(const Tensor& like) {
  const VisitMemory::Block block = memory_->Take(like.bytes());
  grads_.push_back({.value = Tensor(block.data, like.dtype(), like.shape()),
                    .block = block.id,
                    .holders = 1});
  return static_cast<int>(grads_.size()) - 1;
}

void Tape::AddPending(Node& node, const Tensor& contribution, int block,
                      int grad_index) {
  if (block >= 0) memory_->Use(block);
  // The last reader of this memory may write to it, even onto itself.
  if (grad_index >= 0) --grads_[grad_index].holders;
  if (grads_[node.grad].holders > 1) {
    // Another value's gradient is in the same memory: part from it first.
    const int own = TakeGrad(node.value);
    env_.device->Copy(*env_.stream, grads_[own].value.data(),
                      grads_[node.grad].value.data(), contribution.bytes());
    if (grads_[node.grad].block >= 0) memory_->Use(grads_[node.grad].block);
    --grads_[node.grad].holders;
    node.grad = own;
  }
  const Grad& grad = grads_[node.grad];
  if (grad.block >= 0) memory_->Use(grad.block);
  env_.accumulate(*env_.device, *env_.stream, node.value.dtype(),
                  grad.value.data(), contribution.data(),
                  contribution.elements());
}

Tensor Backward::grad(Var y) const {
  const int grad = tape_->nodes_[y.id_].grad;
  DELINK_CHECK_GE(grad, 0) << "no gradient has arrived";
  return tape_->grads_[grad].value.Reshape(y.shape());
}

Tape::Node& Backward::InputNode(Var x) {
  DELINK_CHECK(weight_of_ == nullptr)
      << weight_of_->name << ": gradients of inputs are the input closure's";
  return tape_->nodes_[x.id_];
}

Tensor Backward::NewGrad(Var x) {
  Tape::Node& node = InputNode(x);
  DELINK_CHECK(node.needs_grad);
  if (node.grad < 0) {
    node.grad = tape_->TakeGrad(node.value);
    return tape_->grads_[node.grad].value;
  }
  const VisitMemory::Block block = tape_->memory_->Take(node.value.bytes());
  const Tensor value(block.data, node.value.dtype(), node.value.shape());
  pending_.push_back({x.id_, value, block.id, -1});
  return value;
}

Tensor Backward::ReuseGrad(Var y, Var x) {
  const Tensor dy = grad(y);
  Tape::Node& node = InputNode(x);
  DELINK_CHECK(node.needs_grad);
  const int from = tape_->nodes_[y.id_].grad;
  Tape::Grad& held = tape_->grads_[from];
  if (node.grad < 0 && held.holders == 1) {
    DELINK_CHECK_EQ(dy.elements(), node.value.elements());
    node.grad = from;
    ++held.holders;  // until y, whose op this is, lets go
    return dy.Reshape(x.shape());
  }
  const Tensor dx = NewGrad(x);
  device().Copy(stream(), dx.data(), dy.data(), dx.bytes());
  return dx;
}

Backward::Addition Backward::AddToGrad(Var x) {
  Tape::Node& node = InputNode(x);
  if (node.grad < 0) return {.before = {}, .sum = NewGrad(x)};
  const int held = node.grad;
  if (tape_->grads_[held].block >= 0) {
    tape_->memory_->Use(tape_->grads_[held].block);
  }
  if (tape_->grads_[held].holders > 1) {
    // Another value's gradient is in the same memory: part from it.
    node.grad = tape_->TakeGrad(node.value);
    --tape_->grads_[held].holders;
  }
  return {.before = tape_->grads_[held].value.Reshape(x.shape()),
          .sum = tape_->grads_[node.grad].value};
}

void Backward::PassGrad(Var y, Var x) {
  Tape::Node& node = InputNode(x);
  if (!node.needs_grad) return;
  const int from = tape_->nodes_[y.id_].grad;
  DELINK_CHECK_GE(from, 0) << "no gradient has arrived";
  Tape::Grad& grad = tape_->grads_[from];
  if (node.grad < 0) {
    node.grad = from;
    ++grad.holders;
    // The same memory, seen with the shape of x.
    DELINK_CHECK_EQ(grad.value.elements(), node.value.elements());
    return;
  }
  ++grad.holders;
  pending_.push_back({x.id_, grad.value, grad.block, from});
}

void Backward::UseGrad(Var dx, Var x) {
  Tape::Node& node = InputNode(x);
  if (!node.needs_grad) return;
  const Tape::Node& from = tape_->nodes_[dx.id_];
  if (node.grad < 0) {
    // Saved values live in the slot, outside the plan of this phase.
    tape_->grads_.push_back({.value = from.value, .block = -1, .holders = 1});
    node.grad = static_cast<int>(tape_->grads_.size()) - 1;
    return;
  }
  pending_.push_back({x.id_, from.value, -1, -1});
}

Tensor Backward::Scratch(const Shape& shape, DType dtype) {
  const VisitMemory::Block block =
      tape_->memory_->Take(shape.elements() * SizeOf(dtype));
  return {block.data, dtype, shape};
}

}  // namespace delink
