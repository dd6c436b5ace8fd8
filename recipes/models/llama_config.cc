#include "recipes/models/llama_config.h"

#include "absl/strings/str_format.h"
#include "recipes/schema/section.h"

namespace delink {
namespace {

constexpr int64_t kMaxSize = 1 << 24;

using ops::RotaryScaling;

void CheckScaling(Section& s, const ops::RotaryConfig& c, int64_t head_dim) {
  if (c.scaling == RotaryScaling::kNone && c.factor != 1) {
    s.Error("rope_scaling.factor", "has no effect with kind \"none\"");
  }
  if (c.scaling == RotaryScaling::kNtk && head_dim <= 2) {
    s.Error("rope_scaling.kind", "\"ntk\" needs heads of more than 2");
  }
  if (c.scaling == RotaryScaling::kLlama3 &&
      c.low_freq_factor >= c.high_freq_factor) {
    s.Error("rope_scaling.high_freq_factor",
            absl::StrFormat("%g is not above low_freq_factor %g",
                            c.high_freq_factor, c.low_freq_factor));
  }
}

void CheckHeads(Section& s, LlamaConfig& c) {
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  if (c.ffn == 0) c.ffn = LlamaConfig::DefaultFfn(c.dim);
  if (c.heads % c.kv_heads != 0) {
    s.Error("kv_heads", absl::StrFormat("%d does not divide heads %d",
                                        c.kv_heads, c.heads));
  }
  if (c.head_dim == 0) {
    if (c.dim % c.heads != 0) {
      return s.Error("heads", absl::StrFormat("%d does not divide dim %d, and "
                                              "there is no head_dim",
                                              c.heads, c.dim));
    }
    c.head_dim = c.dim / c.heads;
  }
  if (c.head_dim % 2 != 0 || c.head_dim > 2 * kMaxRotaryPairs) {
    return s.Error("head_dim",
                   absl::StrFormat("%d: rotary positions need an even number, "
                                   "at most %d",
                                   c.head_dim, 2 * kMaxRotaryPairs));
  }
  CheckScaling(s, c.rotary, c.head_dim);
}

void DescribeScaling(Section& s, ops::RotaryConfig& c) {
  s.Enum("kind", &c.scaling,
         {{"none", RotaryScaling::kNone},
          {"linear", RotaryScaling::kLinear},
          {"ntk", RotaryScaling::kNtk},
          {"llama3", RotaryScaling::kLlama3}},
         {.doc = "positions for longer contexts than a model was made for: as "
                 "they are, divided by factor, with a base grown by "
                 "factor^(head_dim / (head_dim - 2)), or as Llama 3.1, which "
                 "slows the slow frequencies alone"});
  s.Float("factor", &c.factor,
          {.doc = "how much longer", .min = 1.0, .max = 1e6});
  s.Float("low_freq_factor", &c.low_freq_factor,
          {.doc = "llama3: waves longer than original_max_seq / this are "
                  "divided by factor",
           .above = 0.0,
           .max = 1e6});
  s.Float("high_freq_factor", &c.high_freq_factor,
          {.doc = "llama3: waves shorter than original_max_seq / this stay",
           .above = 0.0,
           .max = 1e6});
  s.Int("original_max_seq", &c.original_length,
        {.doc = "llama3: the context that the model was made for",
         .min = 1,
         .max = kMaxSize});
}

void DescribeSizes(Section& s, LlamaConfig& c) {
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
  size("layers", &c.layers, "blocks", "");
  size("dim", &c.dim, "width of the residual stream", "");
  size("heads", &c.heads, "attention heads", "");
  size("kv_heads", &c.kv_heads, "key/value heads; divides heads", "`heads`");
  size("head_dim", &c.head_dim, "width of a head, even", "`dim` / `heads`");
  size("ffn", &c.ffn, "width inside the MLP",
       "8/3 x `dim`, rounded up to a multiple of 256", 4 * kMaxSize);
  size("vocab", &c.vocab,
       "rows of the token embedding, at least the tokenizer's", "the corpus's");
  size("max_seq", &c.max_seq, "longest sequence, at least `data.seq`",
       "`data.seq`");
}

}  // namespace

int64_t LlamaConfig::DefaultFfn(int64_t dim) {
  constexpr int64_t kMultiple = 256;
  return (8 * dim / 3 + kMultiple - 1) / kMultiple * kMultiple;
}

std::vector<std::string> LlamaConfig::parts() const {
  return {"attention", "mlp", "norm"};
}

std::unique_ptr<ModelConfig> LlamaConfig::Clone() const {
  return std::make_unique<LlamaConfig>(*this);
}

void LlamaConfig::Describe(Section& s) {
  DescribeSizes(s, *this);
  s.Float("norm_eps", &norm_eps,
          {.doc = "added to the mean square", .above = 0.0, .max = 1.0});
  s.Float("rope_theta", &rotary.base,
          {.doc = "base of the rotary frequencies", .min = 1.0, .max = 1e12});
  s.Enum("rope_pairing", &rotary.pairing,
         {{"half", RotaryPairing::kHalf},
          {"interleaved", RotaryPairing::kInterleaved}},
         {.doc = "which elements of a head turn together: i and i + "
                 "head_dim / 2 (as in Hugging Face checkpoints), or 2 i and "
                 "2 i + 1 (as in Meta's own)"});
  s.SubTable("rope_scaling", {.doc = "stretches the rotary positions"},
             [this](Section& sub) { DescribeScaling(sub, rotary); });
  s.Bool("qk_norm", &qk_norm,
         {.doc = "RMS norm of each query and key head, before rotary"});
  s.Bool("qkv_bias", &qkv_bias,
         {.doc = "biases of queries, keys and values; there are no others"});
  s.Int("window", &window,
        {.doc = "tokens that a token sees, itself one; 0: all before it",
         .min = 0,
         .max = kMaxSize});
  s.Bool("tied", &tied, {.doc = "the head is the token embedding"});
  s.Float("z_loss", &z_loss,
          {.doc = "weight of the squared log-partition of each token, which is "
                  "minimised with the loss; the loss is reported without it",
           .min = 0.0,
           .max = 1.0});
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

ModelKind LlamaKind() {
  return {"llama",
          "Llama 2 and 3, Qwen 2 and 3, Mistral: pre-norm blocks of causal "
          "attention with rotary positions and a gated MLP, RMS norms.",
          [] { return std::make_unique<LlamaConfig>(); }};
}

}  // namespace delink
