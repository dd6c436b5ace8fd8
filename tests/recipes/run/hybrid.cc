#include "tests/recipes/run/hybrid.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "layers/modules/attention.h"
#include "layers/modules/embedding.h"
#include "layers/modules/lm_head.h"
#include "layers/modules/mlp.h"
#include "layers/modules/norm.h"
#include "layers/ops/add.h"

namespace delink::testing {
namespace {

class HybridBlock final : public Module {
 public:
  struct Config {
    bool attention;
    int64_t dim;
  };
  HybridBlock(const Scope& s, const Config& c)
      : norm_(s / "norm", {.dim = c.dim}) {
    if (c.attention) {
      attention_.emplace(s / "attn",
                         Attention::Config{.dim = c.dim, .heads = 4});
    } else {
      mlp_.emplace(s / "mlp", Mlp::Config{.dim = c.dim, .hidden = 4 * c.dim});
    }
  }

  Var operator()(Var x) override {
    const Var y = norm_(x);
    return x + (attention_.has_value() ? (*attention_)(y) : (*mlp_)(y));
  }

 private:
  Norm norm_;
  std::optional<Attention> attention_;
  std::optional<Mlp> mlp_;
};

}  // namespace

std::unique_ptr<Sequential> BuildHybrid(const Scope& s, const GptConfig& c) {
  auto model = std::make_unique<Sequential>(s);
  model->Prologue<Embedding>(
      "embed", {.vocab = c.vocab, .dim = c.dim, .positions = c.max_seq});
  for (int64_t i = 0; i < c.layers; ++i) {
    model->Block<HybridBlock>({.attention = i % 2 == 0, .dim = c.dim});
  }
  model->Epilogue<LmHead>({.dim = c.dim, .vocab = c.vocab});
  return model;
}

ModelList Hybrids() {
  ModelList models;
  AddModel(models, GptKind(), BuildHybrid);
  return models;
}

}  // namespace delink::testing
