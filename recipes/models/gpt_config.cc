#include "recipes/models/gpt_config.h"

#include "absl/strings/str_format.h"
#include "recipes/schema/section.h"

namespace delink {
namespace {

constexpr int64_t kMaxSize = 1 << 24;

void CheckHeads(Section& s, GptConfig& c) {
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  if (c.ffn == 0) c.ffn = 4 * c.dim;
  if (c.dim % c.heads != 0) {
    s.Error("heads",
            absl::StrFormat("%d does not divide dim %d", c.heads, c.dim));
  }
  if (c.heads % c.kv_heads != 0) {
    s.Error("kv_heads", absl::StrFormat("%d does not divide heads %d",
                                        c.kv_heads, c.heads));
  }
}

}  // namespace

std::vector<std::string> GptConfig::parts() const {
  return {"attention", "mlp", "norm"};
}

std::unique_ptr<ModelConfig> GptConfig::Clone() const {
  return std::make_unique<GptConfig>(*this);
}

void GptConfig::Describe(Section& s) {
  const auto size = [&](std::string_view name, int64_t* value,
                        std::string_view doc, std::string_view when_omitted,
                        int64_t max = kMaxSize) {
    s.Int(name, value,
          {.doc = doc,
           .required = when_omitted.empty(),
           .when_omitted = when_omitted,
           .min = 1,
           .max = max});
  };
  size("layers", &layers, "blocks", "");
  size("dim", &dim, "width of the residual stream", "");
  size("heads", &heads, "attention heads; divides dim", "");
  size("kv_heads", &kv_heads, "key/value heads; divides heads", "`heads`");
  size("ffn", &ffn, "width inside the MLP", "4 x `dim`", 4 * kMaxSize);
  size("vocab", &vocab, "rows of the token embedding, at least the tokenizer's",
       "the corpus's");
  size("max_seq", &max_seq, "positions, at least `data.seq`", "`data.seq`");
  s.Enum("norm", &norm,
         {{"layer_norm", Norm::kLayerNorm}, {"rms_norm", Norm::kRmsNorm}},
         {.doc = "normalisation before attention, MLP and head"});
  s.Float("norm_eps", &norm_eps,
          {.doc = "added to the variance", .above = 0.0, .max = 1.0});
  s.Bool("bias", &bias, {.doc = "biases in the linear layers"});
  s.Enum("activation", &activation,
         {{"gelu_tanh", Activation::kGeluTanh},
          {"gelu_erf", Activation::kGeluErf}},
         {.doc = "of the MLP"});
  s.Bool("tied", &tied, {.doc = "the head is the token embedding"});
  s.Float("dropout", &dropout,
          {.doc = "probability, on the embedding and on what attention and MLP "
                  "add",
           .min = 0.0,
           .below = 1.0});
  s.Float("init_std", &init_std,
          {.doc = "standard deviation of initial weights; those that write to "
                  "the residual stream are divided by sqrt(2 x layers)",
           .min = 0.0,
           .max = 1e3});
  if (s.complete()) CheckHeads(s, *this);
}

ModelKind GptKind() {
  return {"gpt",
          "GPT-2's layout: learned positions, pre-norm blocks of causal "
          "attention and an MLP.",
          [] { return std::make_unique<GptConfig>(); }};
}

}  // namespace delink
