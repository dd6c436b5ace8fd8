// What the kinds of transformers have in common.
#pragma once

#include <memory>
#include <string_view>

#include "framework/module/module.h"
#include "framework/module/scope.h"
#include "framework/module/sequential.h"
#include "layers/modules/attention.h"
#include "layers/modules/lm_head.h"
#include "layers/modules/norm.h"
#include "layers/ops/add.h"

namespace delink {

// A block with norms before its attention and before its MLP, a module M.
template <typename M>
class PreNormBlock final : public Module {
 public:
  struct Config {
    using Block = PreNormBlock;
    Norm::Config norm;
    Attention::Config attention;
    typename M::Config mlp;
    std::string_view name = "mlp";  // of the MLP's scope
  };
  PreNormBlock(const Scope& s, const Config& c)
      : norm1_(s / "norm1", c.norm),
        attn_(s / "attn", c.attention),
        norm2_(s / "norm2", c.norm),
        mlp_(s / c.name, c.mlp) {}

  Var operator()(Var x) override {
    const auto [y, normed] = norm2_.Add(x, attn_(norm1_(x)));
    return y + mlp_(normed);
  }

 private:
  Norm norm1_;
  Attention attn_;
  Norm norm2_;
  M mlp_;
};

// A model of a kind that has EmbeddingOf, AddBlocks and HeadOf its configs,
// with an embedding E.
template <typename E, typename Config>
std::unique_ptr<Sequential> BuildTransformer(const Scope& s, const Config& c) {
  auto model = std::make_unique<Sequential>(s);
  model->template Prologue<E>("embed", EmbeddingOf(c));
  AddBlocks(*model, c);
  model->template Epilogue<LmHead>(HeadOf(c));
  return model;
}

}  // namespace delink
