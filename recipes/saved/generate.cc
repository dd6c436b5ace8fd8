#include "recipes/saved/generate.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/step/plan/measure.h"
#include "layers/ops/accumulate.h"

namespace delink {
namespace {

Buffer Take(Device& device, int64_t bytes) {
  absl::StatusOr<Buffer> buffer = Buffer::Allocate(device, bytes, "tensors");
  DELINK_CHECK(buffer.ok()) << std::string(buffer.status().message());
  return *std::move(buffer);
}

// A row of numbers from the device.
std::vector<double> ToHost(Device& device, Stream& stream, const Tensor& x) {
  std::vector<char> bytes(static_cast<size_t>(x.bytes()));
  device.CopyToHost(stream, bytes.data(), x.data(), x.bytes());
  stream.Synchronize();
  std::vector<double> values(static_cast<size_t>(x.elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = x.dtype() == DType::kF64
                    ? reinterpret_cast<const double*>(bytes.data())[i]
                    : reinterpret_cast<const float*>(bytes.data())[i];
  }
  return values;
}

// The last `count` tokens of x [1, T, ...].
Tensor LastTokens(const Tensor& x, int64_t count) {
  const int64_t skipped = x.bytes() / x.dim(1) * (x.dim(1) - count);
  return {
      static_cast<char*>(x.data()) + skipped, x.dtype(), {1, count, x.dim(2)}};
}

}  // namespace

Generator::Generator(Sequential& model, ParamStore& store,
                     const Options& options)
    : model_(model),
      store_(store),
      binder_(store),
      options_(options),
      key_(Fold(KeyFromSeed(options.seed), "generate")),
      own_stream_(options.ranks == nullptr ? store.device().NewStream()
                                           : nullptr),
      stream_(options.ranks == nullptr ? own_stream_.get()
                                       : &options.ranks->stream()) {
  DELINK_CHECK_GT(options.positions, 0);
  DELINK_CHECK(store.options().dtype == DType::kF32 ||
               store.options().dtype == DType::kF64);
  layers_.resize(store.visited().size());
  for (Layer& layer : layers_) layer.states.positions = options.positions;
  absl::StatusOr<std::unique_ptr<StreamedWeights>> weights =
      StreamedWeights::Create(
          store, options.ranks == nullptr ? nullptr : options.ranks->gathers());
  DELINK_CHECK(weights.ok()) << std::string(weights.status().message());
  weights_ = *std::move(weights);
  if (options.ranks == nullptr) return;
  width_ = MeasureLayers(model, store, {.same_tokens = true}, Accumulate)
               .front()
               .output[2];
}

Generator::~Generator() = default;

void Generator::Prompt(std::span<const int32_t> tokens) {
  DELINK_CHECK(!tokens.empty());
  context_.assign(tokens.begin(), tokens.end());
  fed_ = 0;
  drawn_ = 0;
}

int32_t Generator::Next() {
  FeedWaiting();
  const int32_t token = SampleToken(logits_, options_.sampling, key_, drawn_++);
  context_.push_back(token);
  return token;
}

const std::vector<double>& Generator::Logits() {
  FeedWaiting();
  return logits_;
}

void Generator::FeedWaiting() {
  DELINK_CHECK(!context_.empty()) << "no prompt";
  if (fed_ == context_.size()) return;
  const auto positions = static_cast<size_t>(options_.positions);
  if (context_.size() > positions) {
    const size_t kept = (positions + 1) / 2;
    context_.erase(context_.begin(),
                   context_.end() - static_cast<std::ptrdiff_t>(kept));
    fed_ = 0;
  }
  if (fed_ == 0) {
    for (Layer& layer : layers_) layer.states.made.clear();
  }
  Feed(std::span(context_).subspan(fed_));
  fed_ = context_.size();
}

void Generator::Feed(std::span<const int32_t> tokens) {
  Device& device = store_.device();
  const auto T = static_cast<int64_t>(tokens.size());
  Tensor x(nullptr, DType::kI32, {1, T});
  Output out{.memory = Take(device, x.bytes())};
  x = Tensor(out.memory.data(), DType::kI32, {1, T});
  device.CopyFromHost(*stream_, x.data(), tokens.data(), x.bytes());
  stream_->Synchronize();
  for (size_t place = 0; place < layers_.size(); ++place) {
    const bool last = place + 1 == layers_.size();
    if (last && !Has(place)) break;
    Output next = Has(place) ? Run(place, x) : Elsewhere(T);
    out = std::move(next);
    x = out.value;
    if (options_.ranks != nullptr && !last) options_.ranks->HandOn(place, x);
  }
  TakeLogits(x);
  const auto vocab = static_cast<size_t>(options_.vocab);
  if (vocab > 0 && vocab < logits_.size()) logits_.resize(vocab);
}

Generator::Output Generator::Elsewhere(int64_t tokens) {
  Tensor value(nullptr, store_.options().dtype, {1, tokens, width_});
  Output out{.memory = Take(store_.device(), value.bytes())};
  out.value = Tensor(out.memory.data(), value.dtype(), value.shape());
  return out;
}

void Generator::TakeLogits(const Tensor& x) {
  if (Has(layers_.size() - 1)) {
    logits_ = ToHost(store_.device(), *stream_, LastTokens(x, 1));
  }
  ForwardRanks* const ranks = options_.ranks;
  if (ranks == nullptr) return;
  auto count = static_cast<int64_t>(logits_.size());
  ranks->Tell(&count, sizeof(count));
  logits_.resize(static_cast<size_t>(count));
  ranks->Tell(logits_.data(), count * static_cast<int64_t>(sizeof(double)));
  DELINK_CHECK(ranks->status().ok()) << std::string(ranks->status().message());
}

Generator::Output Generator::Run(size_t place, const Tensor& x) {
  Layer& layer = At(layers_, place);
  const auto first = static_cast<int64_t>(fed_);
  if (!layer.recomputed) {
    // Only the last token's logits are computed, because logits are large. So
    // the last layer can keep no state.
    const bool head = place + 1 == layers_.size();
    Output out =
        head ? Visit(place, LastTokens(x, 1), first + x.dim(1) - 1, nullptr)
             : Visit(place, x, first, &layer.states);
    if (out.by_token) return out;
    DELINK_CHECK_EQ(fed_, size_t{0})
        << model_.layer_name(At(store_.visited(), place))
        << " has other ops than before";
    layer.recomputed = true;
    layer.states.made.clear();
  }
  Output out = Visit(place, Remember(layer, x), 0, nullptr);
  out.value = LastTokens(out.value, x.dim(1));
  return out;
}

Tensor Generator::Remember(Layer& layer, const Tensor& x) {
  Device& device = store_.device();
  const int64_t bytes = x.bytes() / x.dim(1);  // of a token
  const auto known = static_cast<int64_t>(fed_);
  if (layer.inputs.data() == nullptr) {
    layer.inputs = Take(device, options_.positions * bytes);
  }
  device.Copy(*stream_, layer.inputs.at(known * bytes), x.data(), x.bytes());
  const int64_t T = known + x.dim(1);
  return {layer.inputs.data(), x.dtype(),
          x.shape().rank() == 2 ? Shape{1, T} : Shape{1, T, x.dim(2)}};
}

Generator::Output Generator::Visit(size_t place, const Tensor& x,
                                   int64_t first_position,
                                   VisitStates* states) {
  Device& device = store_.device();
  const int layer = At(store_.visited(), place);
  weights_->Bring(place, *stream_);
  binder_.Bind(layer, nullptr);
  HeapMemory memory(device);
  Tape tape({.device = &device,
             .stream = stream_,
             .groups = options_.ranks != nullptr ? options_.ranks->groups()
                                                 : VisitGroups()},
            memory);
  tape.BeginForward(
      Phase::kEval,
      {.training = false, .first_position = first_position, .states = states});
  const Var y = model_.layer(layer)(tape.Input(x, false));
  Output out{.memory = Take(device, y.value().bytes())};
  out.value = Tensor(out.memory.data(), y.dtype(), y.shape());
  tape.Finish(y, out.value);
  out.by_token = tape.by_token();
  // The visit's memory is freed when this returns.
  stream_->Synchronize();
  return out;
}

}  // namespace delink
