#include "recipes/models/gpt_config.h"

#include "absl/strings/str_format.h"
#include "recipes/schema/section.h"

namespace delink {
namespace {

std::string_view Word(NormKind norm) {
  switch (norm) {
    case NormKind::kLayerNorm:
      return "layer_norm";
    case NormKind::kRmsNorm:
      return "rms_norm";
  }
  return "";
}

std::string_view Word(GeluForm gelu) {
  switch (gelu) {
    case GeluForm::kTanh:
      return "gelu_tanh";
    case GeluForm::kErf:
      return "gelu_erf";
  }
  return "";
}

}  // namespace

std::unique_ptr<ModelConfig> GptConfig::Clone() const {
  return std::make_unique<GptConfig>(*this);
}

void GptConfig::Describe(Section& s) {
  DescribeSizes(s, {.heads = "attention heads; divides dim",
                    .ffn_omitted = "4 x `dim`",
                    .max_seq = "positions, at least `data.seq`"});
  s.Enum("norm", &norm, Word,
         {.doc = "normalisation before attention, MLP and head"});
  DescribeNormEps(s, "added to the variance");
  s.Bool("bias", &bias, {.doc = "biases in the linear layers"});
  s.Enum("activation", &activation, Word,
         {.doc = "activation function of the MLP"});
  DescribeTied(s);
  DescribeWeights(s);
  if (!s.complete()) return;
  if (ffn == 0) ffn = 4 * dim;
  if (dim % heads != 0) {
    s.Error("heads", absl::StrFormat("%d does not divide dim %d", heads, dim));
  }
  CheckKvHeads(s);
}

ModelKind GptKind() {
  return {"gpt",
          "GPT-2's layout: learned positions, pre-norm blocks of causal "
          "attention and an MLP.",
          [] { return std::make_unique<GptConfig>(); }};
}

}  // namespace delink
