#include "recipes/models/gpt.h"

#include <cmath>

#include "layers/modules/attention.h"
#include "layers/modules/embedding.h"
#include "layers/modules/lm_head.h"
#include "layers/modules/mlp.h"
#include "layers/modules/norm.h"
#include "layers/ops/add.h"

namespace delink {
namespace {

NormKind NormOf(const GptConfig& c) {
  return c.norm == GptConfig::Norm::kRmsNorm ? NormKind::kRmsNorm
                                             : NormKind::kLayerNorm;
}

GeluForm GeluOf(const GptConfig& c) {
  return c.activation == GptConfig::Activation::kGeluErf ? GeluForm::kErf
                                                         : GeluForm::kTanh;
}

// Each block adds two terms to the residual stream, all of the same size.
double OutStddev(const GptConfig& c) {
  return c.init_std / std::sqrt(2.0 * static_cast<double>(c.layers));
}

class GptBlock final : public Module {
 public:
  using Config = GptConfig;
  GptBlock(const Scope& s, const GptConfig& c)
      : norm1_(s / "norm1",
               {.dim = c.dim, .kind = NormOf(c), .eps = c.norm_eps}),
        attn_(s / "attn", {.dim = c.dim,
                           .heads = c.heads,
                           .kv_heads = c.kv_heads,
                           .bias = c.bias,
                           .dropout = c.dropout,
                           .stddev = c.init_std,
                           .out_stddev = OutStddev(c)}),
        norm2_(s / "norm2",
               {.dim = c.dim, .kind = NormOf(c), .eps = c.norm_eps}),
        mlp_(s / "mlp", {.dim = c.dim,
                         .hidden = c.ffn,
                         .gelu = GeluOf(c),
                         .bias = c.bias,
                         .dropout = c.dropout,
                         .stddev = c.init_std,
                         .out_stddev = OutStddev(c)}) {}

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
                           .norm = NormOf(c),
                           .norm_eps = c.norm_eps});
  return model;
}

}  // namespace delink
