#include "dyt/model.h"

#include <memory>

#include "dyt/dynamic_tanh.h"
#include "layers/modules/attention.h"
#include "layers/modules/embedding.h"
#include "layers/modules/lm_head.h"
#include "layers/modules/mlp.h"
#include "layers/ops/add.h"
#include "recipes/schema/section.h"

namespace dyt {
namespace {

using delink::Attention;
using delink::Init;
using delink::Mlp;
using delink::Module;
using delink::Param;
using delink::Scope;
using delink::Var;

// docs: module
class TanhLayer final : public Module {
 public:
  struct Config {
    int64_t dim = 0;
  };
  TanhLayer(const Scope& s, const Config& c)
      : slope_(s.Part("tanh").Param(
            "slope", {.shape = {c.dim}, .init = Init::Ones(), .decay = false})),
        scale_(s.Part("tanh").Param(
            "scale",
            {.shape = {c.dim}, .init = Init::Ones(), .decay = false})) {}

  Var operator()(Var x) override { return DynamicTanh(x, slope_, scale_); }

 private:
  Param& slope_;
  Param& scale_;
};
// docs: end

// docs: block
class DytBlock final : public Module {
 public:
  using Config = DytConfig;
  DytBlock(const Scope& s, const DytConfig& c)
      : tanh1_(s / "tanh1", {.dim = c.dim}),
        attn_(s / "attn",
              {.dim = c.dim, .heads = c.heads, .stddev = c.init_std}),
        tanh2_(s / "tanh2", {.dim = c.dim}),
        mlp_(s / "mlp",
             {.dim = c.dim, .hidden = c.expand * c.dim, .stddev = c.init_std}) {
  }

  Var operator()(Var x) override {
    x = x + attn_(tanh1_(x));
    return x + mlp_(tanh2_(x));
  }

 private:
  TanhLayer tanh1_;
  Attention attn_;
  TanhLayer tanh2_;
  Mlp mlp_;
};
// docs: end

}  // namespace

// docs: describe
void DytConfig::Describe(delink::Section& s) {
  s.Int("layers", &layers, {.doc = "blocks", .required = true, .min = 1});
  s.Int("dim", &dim,
        {.doc = "width of the residual stream", .required = true, .min = 1});
  s.Int("heads", &heads,
        {.doc = "attention heads; divides dim", .required = true, .min = 1});
  s.Int("expand", &expand,
        {.doc = "width inside the MLP, in dims", .min = 1, .max = 64});
  s.Float("init_std", &init_std,
          {.doc = "standard deviation of initial weights", .min = 0.0});
  s.Int("vocab", &vocab,
        {.doc = "tokens", .when_omitted = "the corpus's", .min = 1});
  s.Int("max_seq", &max_seq,
        {.doc = "positions", .when_omitted = "`data.seq`", .min = 1});
  if (s.complete() && dim % heads != 0) {
    s.Error("heads", std::to_string(heads) + " does not divide dim " +
                         std::to_string(dim));
  }
}

delink::ModelKind DytKind() {
  return {"dyt", "GPT's layout with dynamic tanh for norms.",
          [] { return std::make_unique<DytConfig>(); }};
}
// docs: end

// docs: build
std::unique_ptr<delink::Sequential> BuildDyt(const Scope& s,
                                             const DytConfig& c) {
  auto model = std::make_unique<delink::Sequential>(s);
  model->Prologue<delink::Embedding>("embed", {.vocab = c.vocab,
                                               .dim = c.dim,
                                               .positions = c.max_seq,
                                               .stddev = c.init_std});
  for (int64_t i = 0; i < c.layers; ++i) model->Block<DytBlock>(c);
  model->Epilogue<delink::LmHead>(
      {.dim = c.dim, .vocab = c.vocab, .tied_to = "embed/token/weight"});
  return model;
}
// docs: end

}  // namespace dyt
