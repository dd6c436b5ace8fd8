#include "recipes/models/llama.h"

#include <cstdint>

namespace delink {

Embedding::Config EmbeddingOf(const LlamaConfig& c) {
  return {.vocab = c.vocab,
          .dim = c.dim,
          .dropout = c.dropout,
          .stddev = c.init_std};
}

PreNormBlock<GatedMlp>::Config BlockOf(const LlamaConfig& c) {
  return {.norm = {.dim = c.dim, .kind = NormKind::kRmsNorm, .eps = c.norm_eps},
          .attention = {.dim = c.dim,
                        .heads = c.heads,
                        .kv_heads = c.kv_heads,
                        .head_dim = c.head_dim,
                        .bias = c.qkv_bias,
                        .out_bias = false,
                        .rotary = c.rotary,
                        .qk_norm_eps = c.qk_norm ? c.norm_eps : 0,
                        .qk_norm_over_all =
                            c.qk_norm_over == LlamaConfig::QkNormOver::kAll,
                        .window = c.window,
                        .dropout = c.dropout,
                        .stddev = c.init_std,
                        .out_stddev = c.out_stddev()},
          .mlp = {.dim = c.dim,
                  .hidden = c.ffn,
                  .dropout = c.dropout,
                  .stddev = c.init_std,
                  .out_stddev = c.out_stddev()}};
}

void AddBlocks(Sequential& model, const LlamaConfig& c) {
  for (int64_t i = 0; i < c.layers; ++i) {
    model.Block<PreNormBlock<GatedMlp>>(BlockOf(c));
  }
}

LmHead::Config HeadOf(const LlamaConfig& c) {
  return {.dim = c.dim,
          .vocab = c.vocab,
          .tied_to = c.tied ? "embed/token/weight" : "",
          .stddev = c.init_std,
          .norm = NormKind::kRmsNorm,
          .norm_eps = c.norm_eps,
          .z_loss = c.z_loss};
}

std::unique_ptr<Sequential> BuildLlama(const Scope& s, const LlamaConfig& c) {
  return BuildTransformer<Embedding>(s, c);
}

}  // namespace delink
