#include "recipes/models/transformer_config.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "recipes/schema/section.h"

namespace delink {

double TransformerConfig::out_stddev() const {
  return init_std / std::sqrt(2.0 * static_cast<double>(layers));
}

std::vector<std::string> TransformerConfig::parts() const {
  return {"attention", "mlp", "norm"};
}

std::vector<ModelConfig::Cut> TransformerConfig::cuts() const {
  return {{.key = "heads", .count = heads},
          {.key = "kv_heads", .count = kv_heads, .repeated = true},
          {.key = "ffn", .count = ffn}};
}

void TransformerConfig::DescribeSizes(Section& s, const SizeDocs& docs) {
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
  size("heads", &heads, docs.heads, "");
  size("kv_heads", &kv_heads, "key/value heads; divides heads", "`heads`");
  if (docs.head_dim != nullptr) {
    size("head_dim", docs.head_dim, "width of a head, even", "`dim` / `heads`");
  }
  size("ffn", &ffn, "width inside the MLP", docs.ffn_omitted, 4 * kMaxSize);
  size("vocab", &vocab,
       "rows of the token embedding, at least the size of the tokenizer",
       "the corpus's");
  size("max_seq", &max_seq, docs.max_seq, "`data.seq`");
}

void TransformerConfig::DescribeNormEps(Section& s, std::string_view doc) {
  s.Float("norm_eps", &norm_eps, {.doc = doc, .above = 0.0, .max = 1.0});
}

void TransformerConfig::DescribeTied(Section& s) {
  s.Bool("tied", &tied,
         {.doc = "the head uses the matrix of the token embedding"});
}

void TransformerConfig::DescribeWeights(Section& s) {
  s.Float("dropout", &dropout,
          {.doc = "dropout probability on the embedding and on the outputs of "
                  "attention and MLP",
           .min = 0.0,
           .below = 1.0});
  s.Float("init_std", &init_std,
          {.doc = "standard deviation of initial weights; divided by sqrt(2 x "
                  "layers) for matrices that write to the residual stream",
           .min = 0.0,
           .max = 1e3});
}

void TransformerConfig::CheckKvHeads(Section& s) {
  if (kv_heads == 0) kv_heads = heads;
  if (heads % kv_heads != 0) {
    s.Error("kv_heads",
            absl::StrFormat("%d does not divide heads %d", kv_heads, heads));
  }
}

}  // namespace delink
