#include "recipes/run/generate.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "framework/base/check.h"

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

// The last token's vector of x [1, T, D].
Tensor LastRow(const Tensor& x) {
  const int64_t D = x.dim(2);
  char* const at =
      static_cast<char*>(x.data()) + (x.elements() - D) * SizeOf(x.dtype());
  return {at, x.dtype(), {1, 1, D}};
}

}  // namespace

Generator::Generator(Sequential& model, ParamStore& store,
                     const Options& options)
    : model_(model),
      store_(store),
      options_(options),
      key_(Fold(KeyFromSeed(options.seed), "generate")),
      stream_(store.device().NewStream()) {
  DELINK_CHECK_GT(options.positions, 0);
  DELINK_CHECK(store.options().dtype == DType::kF32 ||
               store.options().dtype == DType::kF64);
  for (int layer = 0; layer < model.layers(); ++layer) {
    caches_.push_back(
        std::make_unique<KvCache>(store.device(), 1, options.positions));
  }
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
  Feed(std::span(context_).subspan(fed_));
  fed_ = context_.size();
}

void Generator::Feed(std::span<const int32_t> tokens) {
  Device& device = store_.device();
  const auto T = static_cast<int64_t>(tokens.size());
  Tensor x(nullptr, DType::kI32, {1, T});
  Buffer memory = Take(device, x.bytes());
  x = Tensor(memory.data(), DType::kI32, {1, T});
  device.CopyFromHost(*stream_, x.data(), tokens.data(), x.bytes());
  stream_->Synchronize();
  const int last = model_.layers() - 1;
  for (int layer = 0; layer <= last; ++layer) {
    Tensor y;
    Buffer result = Visit(layer, layer == last ? LastRow(x) : x, &y);
    memory = std::move(result);
    x = y;
  }
  logits_ = ToHost(device, *stream_, x);
}

Buffer Generator::Visit(int layer, const Tensor& x, Tensor* y) {
  Device& device = store_.device();
  store_.Bind(layer, nullptr);
  HeapMemory memory(device);
  Tape tape({.device = &device, .stream = stream_.get()}, memory);
  tape.BeginForward(Phase::kEval,
                    {.training = false,
                     .first_position = static_cast<int64_t>(fed_),
                     .state = caches_[static_cast<size_t>(layer)].get()});
  const Var out = model_.layer(layer)(tape.Input(x, false));
  Buffer result = Take(device, out.value().bytes());
  *y = Tensor(result.data(), out.dtype(), out.shape());
  tape.Finish(out, *y);
  // The visit's memory goes when this returns.
  stream_->Synchronize();
  return result;
}

}  // namespace delink
