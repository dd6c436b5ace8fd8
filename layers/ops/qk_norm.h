// RMS norm of each query head and each key head (Henry et al., "Query-Key
// Normalization", 2020; as in Qwen 3), before rotary.
#pragma once

#include <cstdint>

#include "framework/autograd/tape.h"
#include "framework/module/param.h"

namespace delink::ops {

struct QkNormConfig {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  double eps = 1e-6;
};

// qkv [B, T, (H + 2 Hkv) Dh], packed as for CausalAttention. Each head h of q
// and k becomes h / sqrt(mean(h^2) + eps) * w, where w [Dh] is q_w for queries
// and k_w for keys. Values are copied.
Var QkNorm(Var qkv, const QkNormConfig& c, Param& q_w, Param& k_w);

}  // namespace delink::ops
