// The `llama` kind of model, as the [model] section names it: what Llama 2 and
// 3, Qwen 2 and 3 and Mistral have in common.
//
// Token embedding; pre-norm blocks of causal attention (rotary positions,
// grouped queries) and a gated MLP (SwiGLU), RMS norms, no biases; a final norm
// and a head, its own or tied. The families are settings of it:
//
//   Llama 2, 3   as it is; 3.1 and later: rope_scaling = { kind = "llama3" }
//   Qwen 2       qkv_bias = true
//   Qwen 3       qk_norm = true, head_dim = 128
//   Mistral      window = 4096 (those that have one)
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "layers/ops/rotary.h"
#include "recipes/schema/model_config.h"

namespace delink {

struct LlamaConfig final : ModelConfig {
  int64_t dim = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // divides heads; heads unless given
  int64_t head_dim = 0;  // even; dim / heads unless given
  int64_t ffn = 0;       // DefaultFfn(dim) unless given
  double norm_eps = 1e-5;
  // Positions; its dim stays 0, which is whole heads.
  ops::RotaryConfig rotary;
  bool qk_norm = false;
  bool qkv_bias = false;
  int64_t window = 0;  // 0: a token sees all before it
  bool tied = false;
  double z_loss = 0.0;
  double dropout = 0.0;
  double init_std = 0.02;

  // 8/3 dim, so that three matrices are as large as GPT-2's two, rounded up to
  // a multiple of 256: as Llama computes it.
  static int64_t DefaultFfn(int64_t dim);

  std::string_view kind() const override { return "llama"; }
  std::vector<std::string> parts() const override;
  std::unique_ptr<ModelConfig> Clone() const override;
  void Describe(Section& section) override;
};

ModelKind LlamaKind();

}  // namespace delink
