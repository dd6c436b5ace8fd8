#include "tests/testing/gradcheck.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <string>

#include "tests/testing/numbers.h"

namespace delink::testing {
namespace {

using Values = std::vector<double>;

// Central differences, extrapolated: the error is of fourth order.
template <typename Loss>
Values NumericGradient(std::span<double> x, const Loss& loss) {
  constexpr double kStep = 1e-3;
  const Values fine = CentralDifferences(x, loss, kStep);
  const Values coarse = CentralDifferences(x, loss, 2 * kStep);
  Values result(fine.size());
  for (size_t i = 0; i < fine.size(); ++i) {
    result[i] = (4 * fine[i] - coarse[i]) / 3;
  }
  return result;
}

void ExpectClose(const Values& actual, const Values& expected,
                 const std::string& what) {
  EXPECT_LT(NormError(actual, expected, kGradientFloor), kGradientTolerance)
      << what;
}

// What gradients are of.
double Minimised(const LossRecord& record) {
  return record.loss_sum + record.z_sum;
}

std::string NameOf(size_t param) {
  std::string name = "parameter ";
  return name.append(std::to_string(param));
}

// One op with memory for everything it touches.
class OpRunner {
 public:
  OpRunner(const OpCase& c, MemoryMode memory)
      : c_(c), device_(NewCpuDevice()), key_(KeyFromSeed(7)) {
    x_ = Normals<double>("x", c.x.elements());
    dx_.resize(x_.size());
    for (size_t i = 0; i < c.params.size(); ++i) {
      const auto n = c.params[i].elements();
      params_.push_back(Normals<double>(NameOf(i), n));
      grads_.emplace_back(n);
      owned_.push_back(std::make_unique<Param>());
      pointers_.push_back(owned_.back().get());
    }
    for (int64_t b = 0; b < c.x[0]; ++b) samples_.push_back(100 + 3 * b);
    Bind(false);
    visit_ = std::make_unique<VisitRunner>(VisitRunner::Options{
        .device = device_.get(),
        .memory = memory,
        .layer = [this](Var x) { return c_.op(x, pointers_); },
        .x = c.x,
        .x_dtype = c.tokens.empty() ? DType::kF64 : DType::kI32,
        .x_needs_grad = c.tokens.empty(),
        .loss = c.loss,
        .bind = [this] { Bind(false); },
        .inputs = Inputs()});
    SizeOutput();
  }

  // The function whose gradient is checked; leaves the output in y().
  double Value(Phase phase) {
    Bind(written_);
    record_ = {};
    VisitInputs inputs = Inputs();
    inputs.training = inputs.training && phase != Phase::kEval;
    visit_->Forward(phase, inputs, X(), Y());
    if (c_.loss) return Minimised(record_);
    double sum = 0;
    for (size_t i = 0; i < y_.size(); ++i) sum += y_[i] * dy_[i];
    return sum;
  }

  // With `written`, gradients of parameters begin at 1 and are added to.
  void Gradient(bool written, bool halves = false) {
    written_ = written;
    for (Values& grad : grads_) grad.assign(grad.size(), 1.0);
    Value(Phase::kRecord);
    Values dy = dy_;  // backward may overwrite it
    const Tensor output =
        c_.loss ? Tensor() : Tensor(dy.data(), DType::kF64, shape_);
    const Tensor input(dx_.data(), DType::kF64, c_.x);
    if (halves) {
      visit_->BackwardInput(output, input);
      // By the second half this is another visit's.
      dy.assign(dy.size(), std::numeric_limits<double>::quiet_NaN());
      visit_->BackwardWeight();
    } else {
      visit_->Backward(output, input);
    }
    for (const auto& param : owned_) EXPECT_TRUE(param->written());
  }

  Values& x() { return x_; }
  const Values& y() const { return y_; }
  const Values& dx() const { return dx_; }
  Values& param(size_t i) { return params_[i]; }
  const Values& grad(size_t i) const { return grads_[i]; }

 private:
  void Bind(bool written) {
    for (size_t i = 0; i < owned_.size(); ++i) {
      owned_[i]->Bind(Tensor(params_[i].data(), DType::kF64, c_.params[i]),
                      Tensor(grads_[i].data(), DType::kF64, c_.params[i]),
                      written);
    }
  }
  VisitInputs Inputs() {
    const int32_t* const positions =
        c_.positions.empty() ? nullptr : c_.positions.data();
    return {.training = c_.training,
            .step_key = &key_,
            .samples = samples_.data(),
            .targets = c_.targets.data(),
            .loss = &record_,
            .positions = positions,
            .first_position = c_.first_position,
            .documents = positions};
  }
  Tensor X() {
    if (c_.tokens.empty()) return {x_.data(), DType::kF64, c_.x};
    return {const_cast<int32_t*>(c_.tokens.data()), DType::kI32, c_.x};
  }
  Tensor Y() {
    return c_.loss ? Tensor() : Tensor(y_.data(), DType::kF64, shape_);
  }
  // Asks a first visit, over memory of its own, for the output's shape.
  void SizeOutput() {
    if (c_.loss) return;
    VisitRunner probe({.device = device_.get(),
                       .layer = [this](Var x) { return c_.op(x, pointers_); },
                       .x_needs_grad = false});
    probe.Forward(Phase::kForward, Inputs(), X(), Tensor());
    shape_ = probe.output().shape();
    y_.resize(static_cast<size_t>(shape_.elements()));
    dy_ = Normals<double>("dy", shape_.elements());
  }

  const OpCase& c_;
  std::unique_ptr<Device> device_;
  RngKey key_;
  LossRecord record_;
  std::vector<int64_t> samples_;
  Values x_, dx_, y_, dy_;
  Shape shape_;  // of y
  bool written_ = false;
  std::vector<Values> params_, grads_;
  std::vector<std::unique_ptr<Param>> owned_;
  std::vector<Param*> pointers_;
  std::unique_ptr<VisitRunner> visit_;
};

void CheckOp(const OpCase& c, MemoryMode memory) {
  OpRunner run(c, memory);
  run.Gradient(/*written=*/false);
  const auto loss = [&] { return run.Value(Phase::kForward); };
  const Values dx = run.dx();
  if (c.tokens.empty()) {
    ExpectClose(dx, NumericGradient(run.x(), loss), "x");
  }
  std::vector<Values> grads;
  for (size_t i = 0; i < c.params.size(); ++i) {
    grads.push_back(run.grad(i));
    ExpectClose(grads.back(), NumericGradient(run.param(i), loss), NameOf(i));
  }
  run.Gradient(/*written=*/true);
  for (size_t i = 0; i < c.params.size(); ++i) {
    for (double& g : grads[i]) g += 1.0;
    EXPECT_LT(NormError(run.grad(i), grads[i]), 1e-14)
        << "accumulated parameter " << i;
  }
}

void CheckHalves(const OpCase& c, MemoryMode memory) {
  OpRunner whole(c, memory), halves(c, memory);
  for (const bool written : {false, true}) {
    whole.Gradient(written);
    halves.Gradient(written, /*halves=*/true);
    EXPECT_EQ(halves.dx(), whole.dx());
    for (size_t i = 0; i < c.params.size(); ++i) {
      EXPECT_EQ(halves.grad(i), whole.grad(i)) << NameOf(i);
    }
  }
}

// All phases agree, and so do both kinds of memory.
void CheckPhases(const OpCase& c) {
  std::vector<Values> outputs;
  std::vector<double> losses;
  for (const MemoryMode memory : {MemoryMode::kHeap, MemoryMode::kPlanned}) {
    OpRunner run(c, memory);
    for (const Phase phase : {Phase::kForward, Phase::kRecord}) {
      losses.push_back(run.Value(phase));
      outputs.push_back(run.y());
    }
  }
  for (size_t i = 1; i < outputs.size(); ++i) {
    EXPECT_EQ(losses[0], losses[i]) << i;
    EXPECT_EQ(outputs[0], outputs[i]) << i;
  }
}

}  // namespace

double NormError(const Values& actual, const Values& expected, double floor) {
  EXPECT_EQ(actual.size(), expected.size());
  return RelativeError<double, double>(actual, expected, floor);
}

void ExpectGradients(const OpCase& c) {
  for (const MemoryMode memory : {MemoryMode::kHeap, MemoryMode::kPlanned}) {
    SCOPED_TRACE(ToString(memory));
    CheckOp(c, memory);
    CheckHalves(c, memory);
  }
  CheckPhases(c);
}

void ExpectModelGradients(const ModelRunner::Build& build,
                          const ModelRunner::Batch& batch,
                          const SharingMap& sharing) {
  ModelRunner heap(build, batch, {.sharing = sharing});
  ModelRunner planned(build, batch,
                      {.memory = MemoryMode::kPlanned, .sharing = sharing});
  ModelRunner recompute(
      build, batch,
      {.memory = MemoryMode::kPlanned, .recompute = true, .sharing = sharing});
  ModelRunner halves(
      build, batch,
      {.memory = MemoryMode::kPlanned, .halves = true, .sharing = sharing});
  ModelRunner recompute_halves(build, batch,
                               {.memory = MemoryMode::kPlanned,
                                .recompute = true,
                                .halves = true,
                                .sharing = sharing});
  const double minimised = Minimised(heap.Gradients());
  EXPECT_EQ(minimised, Minimised(planned.Gradients()));
  EXPECT_EQ(minimised, Minimised(recompute.Gradients()));
  EXPECT_EQ(minimised, Minimised(halves.Gradients()));
  EXPECT_EQ(minimised, Minimised(recompute_halves.Gradients()));
  EXPECT_EQ(minimised, Minimised(planned.Loss()));
  for (const LogicalTensor& tensor : heap.tensors()) {
    SCOPED_TRACE(tensor.name);
    const Values gradient = heap.Values(tensor, Plane::kGradient);
    EXPECT_EQ(gradient, planned.Values(tensor, Plane::kGradient));
    EXPECT_EQ(gradient, recompute.Values(tensor, Plane::kGradient));
    EXPECT_EQ(gradient, halves.Values(tensor, Plane::kGradient));
    EXPECT_EQ(gradient, recompute_halves.Values(tensor, Plane::kGradient));
    auto* const weight = static_cast<double*>(
        heap.store().at(tensor.slab, Plane::kWeight, tensor.offset));
    const Values expected = NumericGradient(
        std::span<double>(weight, static_cast<size_t>(tensor.shape.elements())),
        [&] { return Minimised(heap.Loss()); });
    ExpectClose(gradient, expected, tensor.name);
  }
}

ModelRunner::Batch RandomBatch(int64_t B, int64_t T, int64_t vocab,
                               int ignore_every) {
  ModelRunner::Batch batch{.B = B, .T = T};
  batch.tokens = Integers("tokens", B * T, static_cast<int32_t>(vocab));
  batch.targets = Integers("targets", B * T, static_cast<int32_t>(vocab));
  if (ignore_every > 0) {
    for (size_t i = 0; i < batch.targets.size();
         i += static_cast<size_t>(ignore_every)) {
      batch.targets[i] = -1;
    }
  }
  for (int64_t b = 0; b < B; ++b) batch.samples.push_back(1000 + 7 * b);
  return batch;
}

}  // namespace delink::testing
