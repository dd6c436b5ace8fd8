#include "recipes/models/llama.h"

#include "layers/modules/attention.h"
#include "layers/modules/embedding.h"
#include "layers/modules/gated_mlp.h"
#include "layers/modules/lm_head.h"
#include "layers/modules/norm.h"
#include "layers/ops/add.h"

namespace delink {
namespace {

Norm::Config NormOf(const LlamaConfig& c) {
  return {.dim = c.dim, .kind = NormKind::kRmsNorm, .eps = c.norm_eps};
}

class LlamaBlock final : public Module {
 public:
  using Config = LlamaConfig;
  LlamaBlock(const Scope& s, const LlamaConfig& c)
      : norm1_(s / "norm1", NormOf(c)),
        attn_(s / "attn", {.dim = c.dim,
                           .heads = c.heads,
                           .kv_heads = c.kv_heads,
                           .head_dim = c.head_dim,
                           .bias = c.qkv_bias,
                           .out_bias = false,
                           .rotary = c.rotary,
                           .qk_norm_eps = c.qk_norm ? c.norm_eps : 0,
                           .window = c.window,
                           .dropout = c.dropout,
                           .stddev = c.init_std,
                           .out_stddev = c.out_stddev()}),
        norm2_(s / "norm2", NormOf(c)),
        mlp_(s / "mlp", {.dim = c.dim,
                         .hidden = c.ffn,
                         .dropout = c.dropout,
                         .stddev = c.init_std,
                         .out_stddev = c.out_stddev()}) {}

  Var operator()(Var x) override {
    const auto [y, normed] = norm2_.Add(x, attn_(norm1_(x)));
    return y + mlp_(normed);
  }

 private:
  Norm norm1_;
  Attention attn_;
  Norm norm2_;
  GatedMlp mlp_;
};

}  // namespace

std::unique_ptr<Sequential> BuildLlama(const Scope& s, const LlamaConfig& c) {
  auto model = std::make_unique<Sequential>(s);
  model->Prologue<Embedding>("embed", {.vocab = c.vocab,
                                       .dim = c.dim,
                                       .dropout = c.dropout,
                                       .stddev = c.init_std});
  for (int64_t i = 0; i < c.layers; ++i) model->Block<LlamaBlock>(c);
  model->Epilogue<LmHead>({.dim = c.dim,
                           .vocab = c.vocab,
                           .tied_to = c.tied ? "embed/token/weight" : "",
                           .stddev = c.init_std,
                           .norm = NormKind::kRmsNorm,
                           .norm_eps = c.norm_eps,
                           .z_loss = c.z_loss});
  return model;
}

}  // namespace delink
