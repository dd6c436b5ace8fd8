#include "layers/modules/attention.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "framework/base/check.h"
#include "layers/ops/causal_attention.h"
#include "layers/ops/qk_norm.h"

namespace delink {

void KvCache::Append(Stream& stream, const Tensor& qkv, int64_t width,
                     int64_t first) {
  const int64_t T = qkv.dim(1), row = qkv.dim(2);
  DELINK_CHECK_EQ(qkv.dim(0), batch_);
  DELINK_CHECK(first <= size_ && first + T <= capacity_)
      << T << " tokens at " << first << " of " << capacity_ << ", " << size_
      << " known";
  const int64_t size = SizeOf(qkv.dtype());
  if (!value_.defined()) {
    absl::StatusOr<Buffer> buffer = Buffer::Allocate(
        *device_, batch_ * capacity_ * width * size, "keys and values");
    DELINK_CHECK(buffer.ok()) << std::string(buffer.status().message());
    buffer_ = *std::move(buffer);
    value_ = Tensor(buffer_.data(), qkv.dtype(), {batch_, capacity_, width});
  }
  DELINK_CHECK_EQ(value_.dim(2), width);
  for (int64_t b = 0; b < batch_; ++b) {
    const char* const from = static_cast<const char*>(qkv.data()) +
                             ((b * T + 1) * row - width) * size;
    device_->CopyRows(stream,
                      {.to = buffer_.at((b * capacity_ + first) * width * size),
                       .to_pitch = width * size,
                       .from = from,
                       .from_pitch = row * size,
                       .bytes = width * size,
                       .rows = T});
  }
  size_ = first + T;
}

namespace {

int64_t HeadDim(const Attention::Config& c) {
  if (c.head_dim > 0) return c.head_dim;
  DELINK_CHECK_EQ(c.dim % c.heads, 0);
  return c.dim / c.heads;
}

// Elements that a QK norm is over.
int64_t Normed(const Attention::Config& c) {
  DELINK_CHECK(!c.qk_norm_over_all || c.kv_heads == 0 || c.kv_heads == c.heads);
  return HeadDim(c) * (c.qk_norm_over_all ? c.heads : 1);
}

std::optional<RotaryAngles> AnglesOf(const Attention::Config& c) {
  if (!c.rotary.has_value()) return std::nullopt;
  ops::RotaryConfig rotary = *c.rotary;
  if (rotary.dim == 0) rotary.dim = HeadDim(c);
  return ops::RotaryFrequencies(rotary);
}

Param* HeadNorm(const Scope& s, const Attention::Config& c) {
  if (c.qk_norm_eps == 0) return nullptr;
  return &s.Part("attention")
              .Param("weight", {.shape = {Normed(c)},
                                .init = Init::Ones(),
                                .decay = false,
                                .by_head = !c.qk_norm_over_all});
}

}  // namespace

Attention::Attention(const Scope& s, const Config& c)
    : heads_(c.heads),
      kv_heads_(c.kv_heads > 0 ? c.kv_heads : c.heads),
      head_dim_(HeadDim(c)),
      window_(c.window),
      qk_norm_eps_(c.qk_norm_eps),
      qk_norm_over_all_(c.qk_norm_over_all),
      rotary_(AnglesOf(c)),
      qkv_(s.Part("attention") / "qkv",
           {.in = c.dim,
            .out = (heads_ + 2 * kv_heads_) * head_dim_,
            .bias = c.bias,
            .stddev = c.stddev,
            .split = Split::kOut,
            .stacked = {heads_ * head_dim_, kv_heads_ * head_dim_,
                        kv_heads_ * head_dim_},
            .unit = head_dim_}),
      q_norm_(HeadNorm(s / "q_norm", c)),
      k_norm_(HeadNorm(s / "k_norm", c)),
      out_(s.Part("attention") / "out", {.in = heads_ * head_dim_,
                                         .out = c.dim,
                                         .bias = c.bias && c.out_bias,
                                         .stddev = c.out_stddev,
                                         .split = Split::kIn,
                                         .unit = head_dim_,
                                         .residual = true}),
      dropout_(s, c.dropout) {}

Attention::Heads Attention::HeadsOn(const Tape& tape) const {
  const VisitGroup* const group = tape.groups().tensor;
  if (group == nullptr) return {heads_, kv_heads_};
  const int64_t n = group->size();
  DELINK_CHECK(heads_ % n == 0 && (kv_heads_ % n == 0 || n % kv_heads_ == 0))
      << heads_ << " heads, " << kv_heads_ << " of keys and values, over " << n
      << " ranks";
  return {heads_ / n, std::max<int64_t>(1, kv_heads_ / n)};
}

Var Attention::Project(Var x, Heads here) {
  Var qkv = qkv_(x);
  if (q_norm_ != nullptr) {
    // All heads together are one wide head.
    const bool all = qk_norm_over_all_;
    DELINK_CHECK(!all || here.q == heads_)
        << "a norm over heads of other ranks";
    qkv = ops::QkNorm(qkv,
                      {.heads = all ? 1 : here.q,
                       .kv_heads = all ? 1 : here.kv,
                       .eps = qk_norm_eps_},
                      *q_norm_, *k_norm_);
  }
  // In place: the ops above do not need qkv for their backward.
  if (rotary_.has_value()) qkv = ops::Rotary(qkv, here.q, here.kv, *rotary_);
  return qkv;
}

Var Attention::operator()(Var x) {
  Tape& tape = x.tape();
  const VisitInputs& inputs = tape.inputs();
  const Heads here = HeadsOn(tape);
  const Var qkv = Project(x, here);
  if (inputs.states == nullptr) {
    return dropout_(out_(ops::CausalAttention(qkv, here.q, here.kv, window_)));
  }
  DELINK_CHECK(!inputs.training && inputs.documents == nullptr);
  auto& cache =
      tape.State<KvCache>(tape.device(), qkv.dim(0), inputs.states->positions);
  cache.Append(tape.stream(), qkv.value(), 2 * here.kv * head_dim_,
               inputs.first_position);
  return out_(ops::CachedAttention(qkv, here.q, here.kv, cache.value(),
                                   cache.size(), window_));
}

}  // namespace delink
