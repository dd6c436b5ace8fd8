#include "recipes/models/moe.h"

#include "layers/modules/moe.h"
#include "recipes/models/gpt.h"
#include "recipes/models/llama.h"

namespace delink {
namespace {

ExpertActivation ActivationOf(const LlamaConfig&) {
  return ExpertActivation::kSwiGlu;
}
ExpertActivation ActivationOf(const GptConfig& c) {
  return c.activation == GeluForm::kErf ? ExpertActivation::kGeluErf
                                        : ExpertActivation::kGeluTanh;
}

// Of the MLPs, so of the experts.
bool HasBiases(const LlamaConfig&) { return false; }
bool HasBiases(const GptConfig& c) { return c.bias; }

// Calls visit with the config of the kind whose blocks these are.
template <typename Visit>
auto WithBlocks(const MoeConfig& c, Visit visit) {
  const auto sized = [&](auto blocks) {
    blocks.layers = c.layers;
    blocks.vocab = c.vocab;
    blocks.max_seq = c.max_seq;
    return visit(blocks);
  };
  return c.block == MoeConfig::Block::kGpt ? sized(c.gpt) : sized(c.llama);
}

}  // namespace

Embedding::Config EmbeddingOf(const MoeConfig& c) {
  return WithBlocks(c, [](const auto& of) { return EmbeddingOf(of); });
}

void AddBlocks(Sequential& model, const MoeConfig& c) {
  WithBlocks(c, [&](const auto& of) {
    const auto dense = BlockOf(of);
    const PreNormBlock<Moe>::Config sparse = {
        .norm = dense.norm,
        .attention = dense.attention,
        .mlp = {.dim = of.dim,
                .experts = c.experts,
                .hidden = c.expert_ffn,
                .shared_hidden = c.shared_experts * c.expert_ffn,
                .route = c.Route(),
                .bias_rate = c.bias_rate,
                .aux_over_batch =
                    c.aux_loss > 0 && c.aux_over == MoeConfig::AuxOver::kBatch,
                .bias = HasBiases(of),
                .activation = ActivationOf(of),
                .dropout = of.dropout,
                .stddev = of.init_std,
                .out_stddev = of.out_stddev()},
        .name = "moe"};
    using DenseBlock = typename decltype(BlockOf(of))::Block;
    for (int64_t i = 0; i < c.layers; ++i) {
      if (c.HasExperts(i)) {
        model.Block<PreNormBlock<Moe>>(sparse);
      } else {
        model.Block<DenseBlock>(dense);
      }
    }
  });
}

LmHead::Config HeadOf(const MoeConfig& c) {
  return WithBlocks(c, [](const auto& of) { return HeadOf(of); });
}

std::unique_ptr<Sequential> BuildMoe(const Scope& s, const MoeConfig& c) {
  return BuildTransformer<Embedding>(s, c);
}

}  // namespace delink
