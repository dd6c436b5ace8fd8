// The [model] section of the `moe` kind: the blocks of a `llama` or `gpt` with
// mixtures of experts in place of their MLPs. All keys of that kind are keys of
// this one. Settings for the families:
//
//   Mixtral      top_k = 2, router = { normalise = true }
//   Qwen 3 MoE   qk_norm = true, router = { normalise = true }
//   OLMoE        qk_norm = true, qk_norm_over = "all"
//   dots.llm1    qk_norm = true, dense_layers = 1, shared_experts = 2,
//                router = { score = "sigmoid", normalise = true, scale = 2.5,
//                           bias_rate = 0.001 }
//   M6           block = "gpt", prototypes = k, top_k = k
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "layers/ops/route.h"
#include "recipes/models/gpt_config.h"
#include "recipes/models/llama_config.h"

namespace delink {

struct MoeConfig final : ModelConfig {
  enum class Block : uint8_t { kLlama, kGpt };
  enum class Score : uint8_t { kSoftmax, kSigmoid };
  enum class AuxOver : uint8_t { kSequence, kMicroBatch, kBatch };
  enum class Drop : uint8_t { kProbability, kPosition };

  // The blocks; of the two, the one of `block` is used. Its layers, vocab and
  // max_seq are those of this config (Dense).
  Block block = Block::kLlama;
  LlamaConfig llama;
  GptConfig gpt;

  int64_t experts = 0;
  int64_t top_k = 2;
  int64_t expert_ffn = 0;  // ffn unless given
  int64_t shared_experts = 0;
  double capacity = 0;
  int64_t prototypes = 1;
  int64_t moe_every = 1;
  int64_t dense_layers = 0;

  Score score = Score::kSoftmax;
  bool normalise = false;
  bool before_top_k = true;
  int64_t groups = 1;
  int64_t top_groups = 0;  // groups unless given
  double scale = 1;
  std::optional<double> bias_rate;
  double aux_loss = 0;
  AuxOver aux_over = AuxOver::kMicroBatch;
  double z_loss = 0;
  Drop drop = Drop::kProbability;

  // Whether block i, from 0, has experts; else it has the MLP of its kind.
  bool HasExperts(int64_t i) const {
    return i >= dense_layers && (i + 1) % moe_every == 0;
  }
  ops::RouteConfig Route() const;
  const TransformerConfig& Dense() const;

  std::string_view kind() const override { return "moe"; }
  std::vector<std::string> parts() const override;
  std::vector<Cut> cuts() const override;
  std::optional<Objection> ObjectionTo(
      const ParallelConfig& parallel) const override;
  int64_t choices() const override { return top_k; }
  std::unique_ptr<ModelConfig> Clone() const override;
  void Describe(Section& section) override;

 private:
  TransformerConfig& Blocks();
  void DescribeExperts(Section& s);
  void DescribeRouter(Section& s);
  void Check(Section& s);
};

ModelKind MoeKind();

}  // namespace delink
