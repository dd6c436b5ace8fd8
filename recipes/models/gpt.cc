#include "recipes/models/gpt.h"

#include <cstdint>

namespace delink {

Embedding::Config EmbeddingOf(const GptConfig& c) {
  return {.vocab = c.vocab,
          .dim = c.dim,
          .positions = c.max_seq,
          .dropout = c.dropout,
          .stddev = c.init_std};
}

PreNormBlock<Mlp>::Config BlockOf(const GptConfig& c) {
  return {.norm = {.dim = c.dim, .kind = c.norm, .eps = c.norm_eps},
          .attention = {.dim = c.dim,
                        .heads = c.heads,
                        .kv_heads = c.kv_heads,
                        .bias = c.bias,
                        .dropout = c.dropout,
                        .stddev = c.init_std,
                        .out_stddev = c.out_stddev()},
          .mlp = {.dim = c.dim,
                  .hidden = c.ffn,
                  .gelu = c.activation,
                  .bias = c.bias,
                  .dropout = c.dropout,
                  .stddev = c.init_std,
                  .out_stddev = c.out_stddev()}};
}

void AddBlocks(Sequential& model, const GptConfig& c) {
  for (int64_t i = 0; i < c.layers; ++i) {
    model.Block<PreNormBlock<Mlp>>(BlockOf(c));
  }
}

LmHead::Config HeadOf(const GptConfig& c) {
  return {.dim = c.dim,
          .vocab = c.vocab,
          .tied_to = c.tied ? "embed/token/weight" : "",
          .stddev = c.init_std,
          .norm = c.norm,
          .norm_eps = c.norm_eps};
}

std::unique_ptr<Sequential> BuildGpt(const Scope& s, const GptConfig& c) {
  return BuildTransformer<Embedding>(s, c);
}

}  // namespace delink
