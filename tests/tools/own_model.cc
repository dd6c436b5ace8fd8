// A program of one's own, with a model that Delink does not have: what a user's
// repository would hold. Blocks of an MLP and nothing else, so each token is
// predicted from the one before it.
#include "layers/modules/embedding.h"
#include "layers/modules/lm_head.h"
#include "layers/modules/mlp.h"
#include "layers/modules/norm.h"
#include "layers/ops/add.h"
#include "recipes/schema/section.h"
#include "tools/main.h"

namespace {

struct BigramConfig final : delink::ModelConfig {
  int64_t dim = 0;

  std::string_view kind() const override { return "bigram"; }
  std::vector<std::string> parts() const override { return {"norm", "mlp"}; }
  std::unique_ptr<ModelConfig> Clone() const override {
    return std::make_unique<BigramConfig>(*this);
  }
  void Describe(delink::Section& s) override {
    s.Int("layers", &layers, {.doc = "blocks", .required = true, .min = 1});
    s.Int("dim", &dim, {.doc = "width", .required = true, .min = 1});
    s.Int("vocab", &vocab,
          {.doc = "tokens", .when_omitted = "the corpus's", .min = 1});
    s.Int("max_seq", &max_seq,
          {.doc = "longest sequence", .when_omitted = "data.seq", .min = 1});
  }
};

class BigramBlock final : public delink::Module {
 public:
  using Config = BigramConfig;
  BigramBlock(const delink::Scope& s, const BigramConfig& c)
      : norm_(s / "norm", {.dim = c.dim}),
        mlp_(s / "mlp", {.dim = c.dim, .hidden = 2 * c.dim}) {}

  delink::Var operator()(delink::Var x) override { return x + mlp_(norm_(x)); }

 private:
  delink::Norm norm_;
  delink::Mlp mlp_;
};

std::unique_ptr<delink::Sequential> BuildBigram(const delink::Scope& s,
                                                const BigramConfig& c) {
  auto model = std::make_unique<delink::Sequential>(s);
  model->Prologue<delink::Embedding>("embed", {.vocab = c.vocab, .dim = c.dim});
  for (int64_t i = 0; i < c.layers; ++i) model->Block<BigramBlock>(c);
  model->Epilogue<delink::LmHead>({.dim = c.dim, .vocab = c.vocab});
  return model;
}

}  // namespace

int main(int argc, char** argv) {
  delink::ModelList models = delink::BuiltInModels();
  delink::AddModel(models,
                   {"bigram", "Blocks of an MLP and nothing else.",
                    [] { return std::make_unique<BigramConfig>(); }},
                   BuildBigram);
  return delink::Main(argc, argv, std::move(models));
}
