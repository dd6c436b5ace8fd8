// Attention: causal self-attention with grouped queries, in the part
// "attention": qkv [(heads + 2 kv_heads) Dh, dim] (rows: all q, all k, all v)
// and out [dim, heads Dh]; with QK norm also q_norm [Dh] and k_norm [Dh].
// Queries and keys are normalised first, then turned by their position.
// Dropout, as in GPT-2, is on the output; attention probabilities are never in
// memory, so there is none on them.
#pragma once

#include <cstdint>
#include <optional>

#include "framework/module/module.h"
#include "framework/module/scope.h"
#include "framework/tensor/buffer.h"
#include "layers/modules/dropout.h"
#include "layers/modules/linear.h"
#include "layers/ops/rotary.h"

namespace delink {

// The keys and values that one attention layer has seen in a generation. Takes
// its memory at the first Append.
class KvCache final : public VisitState {
 public:
  // Room for `capacity` tokens of each of `batch` sequences.
  KvCache(Device& device, int64_t batch, int64_t capacity)
      : device_(&device), batch_(batch), capacity_(capacity) {}

  // Adds the last `width` elements of each row of qkv [B, T, ...], its keys and
  // values, at positions [first, first + T); what was there and behind is
  // forgotten. Running out of memory is fatal.
  void Append(Stream& stream, const Tensor& qkv, int64_t width, int64_t first);

  const Tensor& value() const { return value_; }  // [B, capacity, width]
  int64_t size() const { return size_; }          // tokens

 private:
  Device* device_;
  int64_t batch_, capacity_;
  int64_t size_ = 0;
  Buffer buffer_;
  Tensor value_;
};

class Attention final : public Module {
 public:
  struct Config {
    int64_t dim = 0;
    int64_t heads = 0;
    int64_t kv_heads = 0;  // 0: heads
    int64_t head_dim = 0;  // Dh; 0: dim / heads
    bool bias = true;
    bool out_bias = true;  // where there is bias
    // Positions by rotation; its dim 0 turns whole heads.
    std::optional<ops::RotaryConfig> rotary = {};
    double qk_norm_eps = 0;  // 0: no QK norm
    int64_t window = 0;      // tokens that a token sees, itself one; 0: all
    double dropout = 0;
    double stddev = 0.02;
    double out_stddev = 0.02;  // of out, which writes to the residual stream
  };
  Attention(const Scope& s, const Config& c);

  // x [B, T, dim]. With inputs().documents a token sees its own document alone.
  // With inputs().states given, where it keeps a KvCache, the tokens at
  // inputs().first_position and on also see those before.
  Var operator()(Var x) override;

 private:
  // Those that a rank has: query heads cut over groups().tensor, and the heads
  // of keys and values that they read, which several ranks have where there are
  // fewer heads than ranks.
  struct Heads {
    int64_t q, kv;
  };
  Heads HeadsOn(const Tape& tape) const;
  // The packed projection of x, ready to attend.
  Var Project(Var x, Heads here);

  int64_t heads_, kv_heads_, head_dim_, window_;
  double qk_norm_eps_;
  std::optional<RotaryAngles> rotary_;
  Linear qkv_;
  Param* q_norm_;  // null without
  Param* k_norm_;  // null without
  Linear out_;
  Dropout dropout_;
};

}  // namespace delink
