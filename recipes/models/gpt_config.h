// The [model] section of the `gpt` kind, with GPT-2's layout.
//
// Token and learned position embedding; pre-norm blocks of causal attention
// (grouped queries where kv_heads < heads) and a two-layer MLP; a final norm
// and a head, tied to the token embedding or not.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "layers/kernels/arguments.h"
#include "layers/modules/norm.h"
#include "recipes/models/transformer_config.h"

namespace delink {

struct GptConfig final : TransformerConfig {
  GptConfig() { tied = true; }

  // ffn defaults to 4 * dim.
  NormKind norm = NormKind::kLayerNorm;
  bool bias = true;  // of the linears
  GeluForm activation = GeluForm::kTanh;

  int64_t head_dim() const { return dim / heads; }

  std::string_view kind() const override { return "gpt"; }
  std::unique_ptr<ModelConfig> Clone() const override;
  void Describe(Section& section) override;
};

ModelKind GptKind();

}  // namespace delink
