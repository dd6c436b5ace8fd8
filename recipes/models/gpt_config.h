// The `gpt` kind of model: GPT-2's layout, as the [model] section names it.
//
// Token and learned position embedding; pre-norm blocks of causal attention
// (grouped queries where kv_heads < heads) and a two-layer MLP; a final norm
// and a head, tied to the token embedding or not.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "recipes/schema/model_config.h"

namespace delink {

struct GptConfig final : ModelConfig {
  enum class Norm { kLayerNorm, kRmsNorm };
  enum class Activation { kGeluTanh, kGeluErf };

  int64_t dim = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // divides heads; heads unless given
  int64_t ffn = 0;       // 4 * dim unless given
  Norm norm = Norm::kLayerNorm;
  double norm_eps = 1e-5;
  bool bias = true;  // of the linears
  Activation activation = Activation::kGeluTanh;
  bool tied = true;
  double dropout = 0.0;
  double init_std = 0.02;

  int64_t head_dim() const { return dim / heads; }

  std::string_view kind() const override { return "gpt"; }
  std::vector<std::string> parts() const override;
  std::unique_ptr<ModelConfig> Clone() const override;
  void Describe(Section& section) override;
};

ModelKind GptKind();

}  // namespace delink
