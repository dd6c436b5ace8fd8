#include "tests/testing/model_runner.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "framework/base/at.h"

namespace delink::testing {

ModelRunner::ModelRunner(const Build& build, const Batch& batch,
                         const Options& options)
    : options_(options),
      batch_(batch),
      device_(NewCpuDevice()),
      model_(build(Scope(registry_, options.dtype))),
      key_(Fold(KeyFromSeed(options.seed), "step")) {
  absl::StatusOr<std::unique_ptr<ParamStore>> store = ParamStore::Create(
      *device_,
      Layout::Create(registry_, model_->blocks(), options.sharing, {}), 0,
      {.dtype = options.dtype,
       .states = {},
       .master = MasterForm::kNone,
       .bf16_gradients = options.bf16_gradients});
  DELINK_CHECK(store.ok());
  store_ = *std::move(store);
  binder_ = std::make_unique<Binder>(*store_);
  store_->InitWeights(options.seed);
  written_.assign(store_->slabs().size(), false);
  // The width of the residual stream is the token table's.
  width_ = registry_.decls.front().spec.shape[1];
  const Shape tokens{batch_.B, batch_.T}, hidden{batch_.B, batch_.T, width_};
  const auto elements = static_cast<size_t>(hidden.elements());
  boundary_.resize(elements);
  for (int layer = 0; layer < model_->layers(); ++layer) {
    activations_.emplace_back(elements);
    const bool last = layer + 1 == model_->layers();
    visits_.push_back(std::make_unique<VisitRunner>(VisitRunner::Options{
        .device = device_.get(),
        .memory = options_.memory,
        .layer =
            [this, layer, last](Var x) {
              if (!last) return model_->layer(layer)(x);
              model_->epilogue().Loss(x);
              return Var();
            },
        .x = layer == 0 ? tokens : hidden,
        .x_dtype = layer == 0 ? DType::kI32 : options_.dtype,
        .x_needs_grad = layer > 0,
        .loss = last,
        .bind = [this, layer] { BindWithGradients(layer); },
        .inputs = Inputs(true)}));
  }
}

ModelRunner::~ModelRunner() = default;

VisitInputs ModelRunner::Inputs(bool training) {
  const int32_t* const positions =
      batch_.positions.empty() ? nullptr : batch_.positions.data();
  return {.training = training,
          .remake = options_.remake,
          .step_key = &key_,
          .samples = batch_.samples.data(),
          .targets = batch_.targets.data(),
          .loss = &record_,
          .positions = positions,
          .documents = positions,
          .sequences = batch_.B};
}

// The output of `layer`; the tokens for -1.
Tensor ModelRunner::ActivationOf(int layer) {
  if (layer < 0) {
    return {batch_.tokens.data(), DType::kI32, {batch_.B, batch_.T}};
  }
  return {At(activations_, layer).data(),
          options_.dtype,
          {batch_.B, batch_.T, width_}};
}

void ModelRunner::BindWithGradients(int layer) {
  std::vector<bool> written;
  for (const int slab : store_->slabs_of_layer(layer)) {
    written.push_back(At(written_, slab));
  }
  binder_->Bind(layer, &written);
}

void ModelRunner::ForwardLayer(int layer, Phase phase, bool again) {
  const bool last = layer + 1 == model_->layers();
  if (last && phase == Phase::kRecord) {
    BindWithGradients(layer);
  } else {
    binder_->Bind(layer, nullptr);
  }
  VisitInputs inputs = Inputs(phase != Phase::kEval);
  inputs.again = again;
  At(visits_, layer)
      ->Forward(phase, inputs, ActivationOf(layer - 1),
                last ? Tensor() : ActivationOf(layer));
}

void ModelRunner::BackwardLayer(int layer) {
  const bool last = layer + 1 == model_->layers();
  VisitRunner& visit = *At(visits_, layer);
  if (options_.recompute && !last) ForwardLayer(layer, Phase::kRecord, true);
  // A loss has taken its gradients in forward.
  if (!last) BindWithGradients(layer);
  const Tensor boundary(boundary_.data(), options_.dtype,
                        {batch_.B, batch_.T, width_});
  visit.Backward(last ? Tensor() : boundary, layer > 0 ? boundary : Tensor());
  Finish(layer);
}

// The parameters have nowhere to put gradients.
void ModelRunner::BackwardInput(int layer) {
  if (options_.recompute) ForwardLayer(layer, Phase::kRecord, true);
  binder_->Bind(layer, nullptr);
  const Tensor boundary(boundary_.data(), options_.dtype,
                        {batch_.B, batch_.T, width_});
  At(visits_, layer)->BackwardInput(boundary, boundary);
}

void ModelRunner::BackwardWeight(int layer) {
  BindWithGradients(layer);
  At(visits_, layer)->BackwardWeight();
  Finish(layer);
}

void ModelRunner::Finish(int layer) {
  const std::unique_ptr<Stream> stream = device_->NewStream();
  binder_->FinishGradients(layer, *stream);
  for (const int slab : store_->slabs_of_layer(layer)) {
    At(written_, slab) = true;
  }
}

void ModelRunner::RunForward(Phase phase) {
  record_ = {};
  const int last = model_->layers() - 1;
  for (int layer = 0; layer < last; ++layer) {
    ForwardLayer(layer, options_.recompute && phase == Phase::kRecord
                            ? Phase::kForward
                            : phase);
  }
  ForwardLayer(last, phase);
}

LossRecord ModelRunner::Loss(bool training) {
  RunForward(training ? Phase::kForward : Phase::kEval);
  return record_;
}

LossRecord ModelRunner::Gradients(int times) {
  written_.assign(written_.size(), false);
  for (int i = 0; i < times; ++i) {
    RunForward(Phase::kRecord);
    const int last = model_->layers() - 1;
    BackwardLayer(last);
    for (int layer = last - 1; layer > 0; --layer) {
      options_.halves ? BackwardInput(layer) : BackwardLayer(layer);
    }
    for (int layer = last - 1; options_.halves && layer > 0; --layer) {
      BackwardWeight(layer);
    }
    BackwardLayer(0);
  }
  return record_;
}

std::vector<double> ModelRunner::Logits() {
  const int last = model_->layers() - 1;
  for (int layer = 0; layer < last; ++layer) ForwardLayer(layer, Phase::kEval);
  binder_->Bind(last, nullptr);
  VisitRunner visit({.device = device_.get(), .layer = [this](Var x) {
                       return model_->epilogue().Logits(x);
                     }});
  visit.Forward(Phase::kEval, Inputs(false), ActivationOf(last - 1), Tensor());
  const auto n = static_cast<size_t>(visit.output().shape().elements());
  if (options_.dtype == DType::kF64) {
    const auto* const values = static_cast<double*>(visit.output().data());
    return {values, values + n};
  }
  const auto* const values = static_cast<float*>(visit.output().data());
  return {values, values + n};
}

std::vector<LogicalTensor> ModelRunner::tensors() const {
  std::vector<LogicalTensor> result;
  for (const LogicalTensor& tensor : store_->layout().tensors()) {
    if (tensor.link.empty()) result.push_back(tensor);
  }
  return result;
}

std::vector<double> ModelRunner::Values(const LogicalTensor& tensor,
                                        Plane plane) const {
  const void* const at = store_->at(tensor.slab, plane, tensor.offset);
  const auto n = static_cast<size_t>(tensor.shape.elements());
  if (options_.dtype == DType::kF64) {
    const auto* const values = static_cast<const double*>(at);
    return {values, values + n};
  }
  const auto* const values = static_cast<const float*>(at);
  return {values, values + n};
}

void ModelRunner::SetWeight(const LogicalTensor& tensor,
                            const std::vector<double>& values) {
  void* const at = store_->at(tensor.slab, Plane::kWeight, tensor.offset);
  if (options_.dtype == DType::kF64) {
    std::copy(values.begin(), values.end(), static_cast<double*>(at));
  } else {
    std::copy(values.begin(), values.end(), static_cast<float*>(at));
  }
}

}  // namespace delink::testing
