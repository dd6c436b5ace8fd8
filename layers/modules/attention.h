// Attention: causal self-attention with grouped queries. The part "attention"
// has qkv [(heads + 2 kv_heads) Dh, dim] (rows: all q, all k, all v) and out
// [dim, heads Dh]; with QK norm also q_norm [Dh] and k_norm [Dh]. Queries and
// keys are normalised first, then rotated by their position. Dropout is applied
// to the output, as in GPT-2. Attention probabilities are never stored in
// memory, so they have no dropout.
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

// The keys and values that one attention layer has seen in a generation. The
// first Append allocates its memory.
class KvCache final : public VisitState {
 public:
  // Room for `capacity` tokens of each of `batch` sequences.
  KvCache(Device& device, int64_t batch, int64_t capacity)
      : device_(&device), batch_(batch), capacity_(capacity) {}

  // Copies the last `width` elements of each row of qkv [B, T, ...], its keys
  // and values, to positions [first, first + T). Entries at and after `first`
  // are discarded. Running out of memory is fatal.
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
    bool out_bias = true;  // ignored if `bias` is false
    // Rotary position embedding; its dim 0 rotates whole heads.
    std::optional<ops::RotaryConfig> rotary = {};
    double qk_norm_eps = 0;  // 0: no QK norm
    // The norms are over all heads together, of which q and k have equally
    // many, instead of over each head. Not over tensor ranks.
    bool qk_norm_over_all = false;
    int64_t window = 0;  // tokens that a token sees, with itself; 0: all
    double dropout = 0;
    double stddev = 0.02;
    double out_stddev = 0.02;  // of out, which writes to the residual stream
  };
  Attention(const Scope& s, const Config& c);

  // x [B, T, dim]. With inputs().documents a token sees only its own document.
  // With inputs().states, this layer keeps a KvCache there, and the tokens from
  // inputs().first_position on also see those before them, within the window.
  Var operator()(Var x) override;

 private:
  // The heads of one rank: its shard of the query heads over groups().tensor,
  // and the key/value heads that these read. If there are fewer key/value heads
  // than ranks, several ranks have the same one.
  struct Heads {
    int64_t q, kv;
  };
  Heads HeadsOn(const Tape& tape) const;
  // The packed projection of x, after QK norm and rotary.
  Var Project(Var x, Heads here);

  int64_t heads_, kv_heads_, head_dim_, window_;
  double qk_norm_eps_;
  bool qk_norm_over_all_;
  std::optional<RotaryAngles> rotary_;
  Linear qkv_;
  Param* q_norm_;  // null without
  Param* k_norm_;  // null without
  Linear out_;
  Dropout dropout_;
};

}  // namespace delink
