// The [model] section of the `llama` kind: what Llama 2 and 3, Qwen 2 and 3 and
// Mistral have in common.
//
// Token embedding; pre-norm blocks of causal attention (rotary positions,
// grouped queries) and a gated MLP (SwiGLU), RMS norms, no biases; a final norm
// and a head, its own or tied. Settings for the families:
//
//   Llama 2, 3   as it is; 3.1 and later: rope_scaling = { kind = "llama3" }
//   Qwen 2       qkv_bias = true
//   Qwen 3       qk_norm = true, head_dim = 128
//   OLMoE        qk_norm = true, qk_norm_over = "all"
//   Mistral      window = 4096 (those that have one)
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "layers/ops/rotary.h"
#include "recipes/models/transformer_config.h"

namespace delink {

struct LlamaConfig final : TransformerConfig {
  // ffn defaults to DefaultFfn(dim).
  int64_t head_dim = 0;  // even; dim / heads unless given
  // Rotary positions; its dim stays 0, which means whole heads.
  ops::RotaryConfig rotary;
  bool qk_norm = false;
  enum class QkNormOver : uint8_t { kHead, kAll };
  QkNormOver qk_norm_over = QkNormOver::kHead;
  bool qkv_bias = false;
  int64_t window = 0;  // 0: a token sees all before it
  double z_loss = 0.0;

  // 8/3 dim, rounded up to a multiple of 256, as in Llama. So its three
  // matrices are as large as GPT-2's two.
  static int64_t DefaultFfn(int64_t dim);

  std::string_view kind() const override { return "llama"; }
  std::optional<Objection> ObjectionTo(
      const ParallelConfig& parallel) const override;
  std::unique_ptr<ModelConfig> Clone() const override;
  void Describe(Section& section) override;

 private:
  void CheckHeads(Section& s);
};

ModelKind LlamaKind();

}  // namespace delink
