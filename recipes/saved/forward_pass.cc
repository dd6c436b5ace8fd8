#include "recipes/saved/forward_pass.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/base/status_macros.h"
#include "framework/tensor/bfloat16.h"
#include "layers/ops/accumulate.h"

namespace delink {
namespace {

const PhasePlan& EvalPlan(const VisitPlan& visits) {
  return At(visits, Phase::kEval);
}

// Tokens whose logits are on the host at a time.
constexpr int64_t kLogitTokens = 64;

Tensor Sequence(const Tensor& x, int64_t sequence) {
  const int64_t bytes = x.bytes() / x.dim(0);
  return {static_cast<char*>(x.data()) + sequence * bytes,
          x.dtype(),
          {1, x.dim(1), x.dim(2)}};
}

template <typename T>
void Widen(const std::vector<char>& bytes, std::vector<double>* values) {
  const auto* const from = reinterpret_cast<const T*>(bytes.data());
  for (size_t i = 0; i < values->size(); ++i) {
    (*values)[i] = static_cast<double>(from[i]);
  }
}

std::vector<double> ToHost(Device& device, Stream& stream, const Tensor& x) {
  std::vector<char> bytes(static_cast<size_t>(x.bytes()));
  device.CopyToHost(stream, bytes.data(), x.data(), x.bytes());
  stream.Synchronize();
  std::vector<double> values(static_cast<size_t>(x.elements()));
  if (x.dtype() == DType::kBF16) {
    Widen<BFloat16>(bytes, &values);
  } else if (x.dtype() == DType::kF64) {
    Widen<double>(bytes, &values);
  } else {
    DELINK_CHECK(x.dtype() == DType::kF32);
    Widen<float>(bytes, &values);
  }
  return values;
}

// The score of `target` from the logits of all tokens.
ForwardPass::TokenScore ScoreOf(std::span<const double> logits,
                                int32_t target) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - most);
  const double logit = logits[static_cast<size_t>(target)];
  return {.log_likelihood = logit - most - std::log(sum),
          .greedy = logit == most};
}

std::vector<LayerPlan> Measure(Sequential& model, const ParamStore& store,
                               BatchShape batch) {
  batch.same_tokens = true;
  return MeasureLayers(model, store, batch, Accumulate);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ForwardPass>> ForwardPass::Create(
    Sequential& model, ParamStore& store, const Options& options) {
  std::unique_ptr<ForwardPass> pass(new ForwardPass(model, store, options));
  DELINK_RETURN_IF_ERROR(pass->Allocate());
  return pass;
}

ForwardPass::ForwardPass(Sequential& model, ParamStore& store,
                         const Options& options)
    : model_(model),
      store_(store),
      binder_(store),
      options_(options),
      own_stream_(options.ranks == nullptr ? store.device().NewStream()
                                           : nullptr),
      stream_(options.ranks == nullptr ? own_stream_.get()
                                       : &options.ranks->stream()),
      layers_(Measure(model, store, options.batch)),
      loss_visits_(layers_.back().visits) {
  if (!options.by_sequence || options.batch.micro_batch == 1) return;
  loss_visits_ =
      Measure(model, store,
              {.seq = options.batch.seq, .masked = options.batch.masked})
          .back()
          .visits;
}

absl::Status ForwardPass::Allocate() {
  const BatchShape& batch = options_.batch;
  int64_t workspace = EvalPlan(loss_visits_).workspace_bytes;
  for (size_t place = 0; place + 1 < layers_.size(); ++place) {
    workspace =
        std::max(workspace, EvalPlan(layers_[place].visits).workspace_bytes);
  }
  const int64_t boundary =
      layers_.front().output.elements() * SizeOf(store_.options().dtype);
  const int64_t tokens = batch.tokens() * SizeOf(DType::kI32);
  const auto record = static_cast<int64_t>(sizeof(LossRecord));
  const int64_t positions = batch.masked ? tokens : 0;
  const std::pair<Buffer*, int64_t> wanted[] = {
      {&workspace_, workspace},
      {&boundaries_[0], boundary},
      {&boundaries_[1], boundary},
      {&inputs_, tokens},
      {&targets_, tokens},
      {&positions_, positions},
      {&samples_, batch.micro_batch * SizeOf(DType::kI64)},
      {&counted_targets_, SizeOf(DType::kI64)},
      {&losses_, batch.micro_batch * record}};
  for (const auto& [buffer, bytes] : wanted) {
    DELINK_ASSIGN_OR_RETURN(*buffer, Buffer::Allocate(store_.device(), bytes));
  }
  DELINK_ASSIGN_OR_RETURN(weights_, StreamedWeights::Create(store_, gathers()));
  return absl::OkStatus();
}

LossRecord ForwardPass::Loss(const HostBatch& batch) {
  DELINK_CHECK(!options_.by_sequence);
  return Run(batch, 1).front();
}

std::vector<LossRecord> ForwardPass::Losses(const HostBatch& batch) {
  DELINK_CHECK(options_.by_sequence);
  return Run(batch, options_.batch.micro_batch);
}

Tensor ForwardPass::RunLayers(const HostBatch& batch) {
  Device& device = store_.device();
  const int64_t bytes = options_.batch.tokens() * SizeOf(DType::kI32);
  device.CopyFromHost(*stream_, inputs_.data(), batch.inputs.data(), bytes);
  device.CopyFromHost(*stream_, targets_.data(), batch.targets.data(), bytes);
  if (options_.batch.masked) {
    device.CopyFromHost(*stream_, positions_.data(), batch.positions.data(),
                        bytes);
  }
  device.CopyFromHost(*stream_, samples_.data(), batch.samples.data(),
                      options_.batch.micro_batch * SizeOf(DType::kI64));
  loaded_counted_ = CountedTargets(batch.targets, 1).front();
  device.CopyFromHost(*stream_, counted_targets_.data(), &loaded_counted_,
                      sizeof(loaded_counted_));
  Tensor x(inputs_.data(), DType::kI32, layers_.front().input);
  for (size_t place = 0; place + 1 < layers_.size(); ++place) {
    ForwardRanks* const ranks = options_.ranks;
    x = ranks == nullptr || ranks->Has(place) ? Visit(place, x)
                                              : OutputOf(place);
    if (ranks != nullptr) ranks->HandOn(place, x);
  }
  return x;
}

std::vector<LossRecord> ForwardPass::Run(const HostBatch& batch,
                                         int64_t records) {
  Device& device = store_.device();
  std::vector<LossRecord> losses(static_cast<size_t>(records));
  const int64_t loss_bytes = records * static_cast<int64_t>(sizeof(LossRecord));
  device.FillZero(*stream_, losses_.data(), loss_bytes);
  const Tensor x = RunLayers(batch);
  const bool here =
      options_.ranks == nullptr || options_.ranks->Has(layers_.size() - 1);
  for (int64_t i = 0; here && i < records; ++i) {
    VisitLoss(options_.by_sequence ? Sequence(x, i) : x, i);
  }
  device.CopyToHost(*stream_, losses.data(), losses_.data(), loss_bytes);
  stream_->Synchronize();
  return losses;
}

std::vector<ForwardPass::TokenScore> ForwardPass::Scores(
    const HostBatch& batch) {
  const Tensor x = RunLayers(batch);
  const int64_t T = options_.batch.seq;
  std::vector<TokenScore> scores;
  if (options_.ranks != nullptr && !options_.ranks->Has(layers_.size() - 1)) {
    return scores;
  }
  for (int64_t b = 0; b < options_.batch.micro_batch; ++b) {
    const auto target = [&](int64_t t) { return At(batch.targets, b * T + t); };
    for (int64_t first = 0; first < T;) {
      int64_t end = first;
      while (end < T && end < first + kLogitTokens && target(end) >= 0) ++end;
      if (end == first) {
        ++first;
        continue;
      }
      const std::vector<double> logits =
          Logits(Sequence(x, b), first, end - first);
      const auto V = static_cast<int64_t>(logits.size()) / (end - first);
      for (int64_t t = first; t < end; ++t) {
        scores.push_back(ScoreOf(
            std::span(logits).subspan(static_cast<size_t>((t - first) * V),
                                      static_cast<size_t>(V)),
            target(t)));
      }
      first = end;
    }
  }
  return scores;
}

std::vector<double> ForwardPass::Logits(const Tensor& x, int64_t first,
                                        int64_t count) {
  Device& device = store_.device();
  const int64_t skipped = x.bytes() / x.dim(1) * first;
  const Tensor some(static_cast<char*>(x.data()) + skipped, x.dtype(),
                    {1, count, x.dim(2)});
  HeapMemory memory(device);
  Tape tape(TapeEnv(), memory);
  Bind(layers_.size() - 1);
  tape.BeginForward(Phase::kEval, {.training = false, .first_position = first});
  const Var y = model_.epilogue().Logits(tape.Input(some, false));
  tape.Finish(y, Tensor());
  std::vector<double> logits = ToHost(device, *stream_, y.value());
  if (tape.by_token() || count == x.dim(1)) return logits;
  // A custom head that mixes positions must see all of them.
  logits = Logits(x, 0, x.dim(1));
  const auto V = static_cast<int64_t>(logits.size()) / x.dim(1);
  return {logits.begin() + first * V, logits.begin() + (first + count) * V};
}

// From sequence `sequence` of the batch on; counted targets are those of all
// of the batch.
VisitInputs ForwardPass::Inputs(int64_t sequence) const {
  const int64_t tokens = sequence * options_.batch.seq;
  VisitInputs inputs{
      .training = false,
      .samples = static_cast<const int64_t*>(samples_.data()) + sequence,
      .targets = static_cast<const int32_t*>(targets_.data()) + tokens,
      .loss = static_cast<LossRecord*>(losses_.data()) + sequence,
      .counted_targets = static_cast<const int64_t*>(counted_targets_.data())};
  if (options_.batch.masked) {
    inputs.positions = static_cast<const int32_t*>(positions_.data()) + tokens;
    inputs.documents = inputs.positions;
  }
  return inputs;
}

Tape::Env ForwardPass::TapeEnv() {
  return {.device = &store_.device(),
          .stream = stream_,
          .accumulate = Accumulate,
          .groups = options_.ranks != nullptr ? options_.ranks->groups()
                                              : VisitGroups()};
}

void ForwardPass::Bind(size_t place) {
  weights_->Bring(place, *stream_);
  binder_.Bind(At(store_.visited(), place), nullptr);
}

// Layers write to the two boundaries in turn.
Tensor ForwardPass::OutputOf(size_t place) const {
  return {boundaries_[place % 2].data(), store_.options().dtype,
          At(layers_, place).output};
}

Tensor ForwardPass::Visit(size_t place, const Tensor& input) {
  const LayerPlan& plan = At(layers_, place);
  const int layer = At(store_.visited(), place);
  const Tensor out = OutputOf(place);
  PlannedMemory memory(plan.visits);
  memory.Bind({.workspace = workspace_.data(), .boundary = out.data()});
  Tape tape(TapeEnv(), memory);
  Bind(place);
  tape.BeginForward(Phase::kEval, Inputs(0));
  const Var y = model_.layer(layer)(tape.Input(input, false));
  tape.Finish(y, out);
  return out;
}

void ForwardPass::VisitLoss(const Tensor& input, int64_t sequence) {
  PlannedMemory memory(loss_visits_);
  memory.Bind({.workspace = workspace_.data()});
  Tape tape(TapeEnv(), memory);
  Bind(layers_.size() - 1);
  tape.BeginForward(Phase::kEval, Inputs(sequence));
  model_.epilogue().Loss(tape.Input(input, true));
}

}  // namespace delink
