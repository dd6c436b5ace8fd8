#include "recipes/models/llama_config.h"

#include "absl/strings/str_format.h"
#include "recipes/schema/recipe.h"
#include "recipes/schema/section.h"

namespace delink {
namespace {

using ops::RotaryScaling;

std::string_view Word(RotaryScaling scaling) {
  switch (scaling) {
    case RotaryScaling::kNone:
      return "none";
    case RotaryScaling::kLinear:
      return "linear";
    case RotaryScaling::kNtk:
      return "ntk";
    case RotaryScaling::kLlama3:
      return "llama3";
  }
  return "";
}

std::string_view Word(RotaryPairing pairing) {
  switch (pairing) {
    case RotaryPairing::kHalf:
      return "half";
    case RotaryPairing::kInterleaved:
      return "interleaved";
  }
  return "";
}

std::string_view Word(LlamaConfig::QkNormOver over) {
  switch (over) {
    case LlamaConfig::QkNormOver::kHead:
      return "head";
    case LlamaConfig::QkNormOver::kAll:
      return "all";
  }
  return "";
}

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

void DescribeScaling(Section& s, ops::RotaryConfig& c) {
  s.Enum("kind", &c.scaling, Word,
         {.doc = "rotary positions for longer contexts than the model was "
                 "trained for: none: unchanged; linear: divided by factor; "
                 "ntk: the base is multiplied by factor^(head_dim / (head_dim "
                 "- 2)); llama3: as in Llama 3.1, which slows only the low "
                 "frequencies"});
  s.Float(
      "factor", &c.factor,
      {.doc = "how much longer the context becomes", .min = 1.0, .max = 1e6});
  s.Float("low_freq_factor", &c.low_freq_factor,
          {.doc = "llama3: frequencies with waves longer than original_max_seq "
                  "/ this are divided by factor",
           .above = 0.0,
           .max = 1e6});
  s.Float("high_freq_factor", &c.high_freq_factor,
          {.doc = "llama3: frequencies with waves shorter than "
                  "original_max_seq / this do not change",
           .above = 0.0,
           .max = 1e6});
  s.Int("original_max_seq", &c.original_length,
        {.doc = "llama3: the context that the model was trained for",
         .min = 1,
         .max = TransformerConfig::kMaxSize});
}

}  // namespace

int64_t LlamaConfig::DefaultFfn(int64_t dim) {
  constexpr int64_t kMultiple = 256;
  return (8 * dim / 3 + kMultiple - 1) / kMultiple * kMultiple;
}

std::unique_ptr<ModelConfig> LlamaConfig::Clone() const {
  return std::make_unique<LlamaConfig>(*this);
}

std::optional<ModelConfig::Objection> LlamaConfig::ObjectionTo(
    const ParallelConfig& parallel) const {
  if (qk_norm_over == QkNormOver::kHead || parallel.tensor == 1) {
    return std::nullopt;
  }
  return Objection{"parallel.tensor",
                   "with model.qk_norm_over = \"all\" a norm is over heads of "
                   "all tensor ranks; use tensor 1"};
}

void LlamaConfig::CheckHeads(Section& s) {
  if (ffn == 0) ffn = DefaultFfn(dim);
  CheckKvHeads(s);
  if (qk_norm_over == QkNormOver::kAll && (!qk_norm || kv_heads != heads)) {
    s.Error("qk_norm_over",
            qk_norm ? absl::StrFormat("\"all\" needs as many kv_heads as "
                                      "heads, but they are %d and %d",
                                      kv_heads, heads)
                    : "has no effect without qk_norm");
  }
  if (head_dim == 0) {
    if (dim % heads != 0) {
      return s.Error("heads", absl::StrFormat("%d does not divide dim %d, and "
                                              "there is no head_dim",
                                              heads, dim));
    }
    head_dim = dim / heads;
  }
  if (head_dim % 2 != 0 || head_dim > 2 * kMaxRotaryPairs) {
    return s.Error("head_dim",
                   absl::StrFormat("%d: rotary positions need an even number, "
                                   "at most %d",
                                   head_dim, 2 * kMaxRotaryPairs));
  }
  CheckScaling(s, rotary, head_dim);
}

void LlamaConfig::Describe(Section& s) {
  DescribeSizes(s,
                {.heads = "attention heads",
                 .ffn_omitted = "8/3 x `dim`, rounded up to a multiple of 256",
                 .max_seq = "longest sequence, at least `data.seq`",
                 .head_dim = &head_dim});
  DescribeNormEps(s, "added to the mean square");
  s.Float("rope_theta", &rotary.base,
          {.doc = "base of the rotary frequencies", .min = 1.0, .max = 1e12});
  s.Enum("rope_pairing", &rotary.pairing, Word,
         {.doc = "which elements of a head rotate together: i and i + head_dim "
                 "/ 2 (as in Hugging Face checkpoints), or 2 i and 2 i + 1 (as "
                 "in Meta's checkpoints)"});
  s.SubTable("rope_scaling", {.doc = "scaling of the rotary positions"},
             [this](Section& sub) { DescribeScaling(sub, rotary); });
  s.Bool("qk_norm", &qk_norm,
         {.doc = "RMS norm of each query and key head before the rotary "
                 "positions"});
  s.Enum("qk_norm_over", &qk_norm_over, Word,
         {.doc = "what each of these norms is over: a head, or all heads "
                 "together (as in OLMoE; `kv_heads` must be `heads`)"});
  s.Bool("qkv_bias", &qkv_bias,
         {.doc = "biases of queries, keys and values; the model has no other "
                 "biases"});
  s.Int("window", &window,
        {.doc = "tokens that a token attends to, itself included; 0: all "
                "earlier tokens",
         .min = 0,
         .max = kMaxSize});
  DescribeTied(s);
  s.Float("z_loss", &z_loss,
          {.doc = "weight of the squared log-partition of each token, which is "
                  "added to the minimised loss; the reported loss excludes it",
           .min = 0.0,
           .max = 1.0});
  DescribeWeights(s);
  if (s.complete()) CheckHeads(s);
}

ModelKind LlamaKind() {
  return {"llama",
          "Llama 2 and 3, Qwen 2 and 3, Mistral: pre-norm blocks of causal "
          "attention with rotary positions and a gated MLP, RMS norms.",
          [] { return std::make_unique<LlamaConfig>(); }};
}

}  // namespace delink
