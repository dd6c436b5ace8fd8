#include "recipes/models/gpt.h"

#include "layers/modules/attention.h"
#include "layers/modules/embedding.h"
#include "layers/modules/lm_head.h"
#include "layers/modules/mlp.h"
#include "layers/modules/norm.h"
#include "layers/ops/add.h"

namespace delink {
namespace {

class GptBlock final : public Module {
 public:
  using Config = GptConfig;
  GptBlock(const Scope& s, const GptConfig& c)
      : norm1_(s / "norm1", {.dim = c.dim, .kind = c.norm, .eps = c.norm_eps}),
        attn_(s / "attn", {.dim = c.dim,
                           .heads = c.heads,
                           .kv_heads = c.kv_heads,
                           .bias = c.bias,
                           .dropout = c.dropout,
                           .stddev = c.init_std,
                           .out_stddev = c.out_stddev()}),
        norm2_(s / "norm2", {.dim = c.dim, .kind = c.norm, .eps = c.norm_eps}),
        mlp_(s / "mlp", {.dim = c.dim,
                         .hidden = c.ffn,
                         .gelu = c.activation,
                         .bias = c.bias,
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
  Mlp mlp_;
};

}  // namespace

std::unique_ptr<Sequential> BuildGpt(const Scope& s, const GptConfig& c) {
  auto model = std::make_unique<Sequential>(s);
  model->Prologue<Embedding>("embed", {.vocab = c.vocab,
                                       .dim = c.dim,
                                       .positions = c.max_seq,
                                       .dropout = c.dropout,
                                       .stddev = c.init_std});
  for (int64_t i = 0; i < c.layers; ++i) model->Block<GptBlock>(c);
  model->Epilogue<LmHead>({.dim = c.dim,
                           .vocab = c.vocab,
                           .tied_to = c.tied ? "embed/token/weight" : "",
                           .stddev = c.init_std,
                           .norm = c.norm,
                           .norm_eps = c.norm_eps});
  return model;
}

}  // namespace delink
