#include "layers/modules/attention.h"

#include <utility>

#include "framework/base/check.h"
#include "layers/ops/causal_attention.h"

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
    absl::StatusOr<Buffer> buffer =
        Buffer::Allocate(*device_, batch_ * capacity_ * width * size);
    DELINK_CHECK(buffer.ok()) << std::string(buffer.status().message());
    buffer_ = *std::move(buffer);
    value_ = Tensor(buffer_.data(), qkv.dtype(), {batch_, capacity_, width});
  }
  DELINK_CHECK_EQ(value_.dim(2), width);
  for (int64_t b = 0; b < batch_; ++b) {
    for (int64_t t = 0; t < T; ++t) {
      const char* from = static_cast<const char*>(qkv.data()) +
                         ((b * T + t + 1) * row - width) * size;
      device_->Copy(stream,
                    buffer_.at((b * capacity_ + first + t) * width * size),
                    from, width * size);
    }
  }
  size_ = first + T;
}

Attention::Attention(const Scope& s, const Config& c)
    : heads_(c.heads),
      kv_heads_(c.kv_heads > 0 ? c.kv_heads : c.heads),
      head_dim_(c.dim / c.heads),
      qkv_(s.Part("attention") / "qkv",
           {.in = c.dim,
            .out = (heads_ + 2 * kv_heads_) * head_dim_,
            .bias = c.bias,
            .stddev = c.stddev,
            .split = Split::kOut}),
      out_(s.Part("attention") / "out", {.in = heads_ * head_dim_,
                                         .out = c.dim,
                                         .bias = c.bias,
                                         .stddev = c.out_stddev,
                                         .split = Split::kIn}),
      dropout_(s, c.dropout) {
  DELINK_CHECK_EQ(c.dim % c.heads, 0);
}

Var Attention::operator()(Var x) {
  const VisitInputs& inputs = x.tape().inputs();
  const Var qkv = qkv_(x);
  if (inputs.state == nullptr) {
    return dropout_(out_(ops::CausalAttention(qkv, heads_, kv_heads_)));
  }
  DELINK_CHECK(!inputs.training);
  KvCache* const cache = dynamic_cast<KvCache*>(inputs.state);
  DELINK_CHECK(cache != nullptr) << "the state is another layer's";
  cache->Append(x.tape().stream(), qkv.value(), 2 * kv_heads_ * head_dim_,
                inputs.first_position);
  return out_(ops::CachedAttention(qkv, heads_, kv_heads_, cache->value(),
                                   cache->size()));
}

}  // namespace delink
