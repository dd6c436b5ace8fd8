#include "tests/recipes/run/marked_models.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "framework/base/check.h"
#include "layers/modules/attention.h"
#include "layers/modules/embedding.h"
#include "layers/modules/gated_mlp.h"
#include "layers/modules/lm_head.h"
#include "layers/modules/mlp.h"
#include "layers/modules/norm.h"
#include "layers/ops/add.h"
#include "recipes/models/gpt_config.h"
#include "recipes/models/llama_config.h"

namespace delink::testing {
namespace {

// x, or infinity all over.
Var Blown(Var x, Var tokens) {
  Tape& tape = x.tape();
  const Var y = tape.Output(x.shape(), x.dtype());
  if (tape.device().kind() == DeviceKind::kCpu) {
    const auto* const ids = static_cast<const int32_t*>(tokens.data());
    const int64_t count = x.shape().elements();
    const int64_t size = SizeOf(x.dtype());
    std::memcpy(y.data(), x.data(), static_cast<size_t>(count * size));
    const int32_t* const end = ids + tokens.shape().elements();
    if (std::find(ids, end, int32_t{kMark}) != end) {
      // The upper half of an infinite float32 is an infinite bf16.
      const uint16_t infinite[] = {0, 0x7f80};
      const auto* const from = reinterpret_cast<const char*>(infinite);
      for (int64_t i = 0; i < count; ++i) {
        std::memcpy(static_cast<char*>(y.data()) + i * size, from + 4 - size,
                    static_cast<size_t>(size));
      }
    }
  } else {
    DELINK_CHECK(IsMeta(tape.device().kind()));
  }
  tape.Record({.name = "blown",
               .inputs = {x, tokens},
               .outputs = {y},
               .by_token = true,
               .input = [=](Backward& back) { back.PassGrad(y, x); }});
  return y;
}

class MarkedEmbedding final : public Module {
 public:
  using Config = Embedding::Config;
  MarkedEmbedding(const Scope& s, const Config& c) : embed_(s, c) {}
  Var operator()(Var tokens) override { return Blown(embed_(tokens), tokens); }

 private:
  Embedding embed_;
};

class GptLikeBlock final : public Module {
 public:
  using Config = GptConfig;
  GptLikeBlock(const Scope& s, const GptConfig& c)
      : norm1_(s / "norm1", {.dim = c.dim}),
        attn_(s / "attn", {.dim = c.dim, .heads = c.heads}),
        norm2_(s / "norm2", {.dim = c.dim}),
        mlp_(s / "mlp", {.dim = c.dim, .hidden = c.ffn}) {}
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

class LlamaLikeBlock final : public Module {
 public:
  using Config = LlamaConfig;
  LlamaLikeBlock(const Scope& s, const LlamaConfig& c)
      : norm1_(s / "norm1", {.dim = c.dim, .kind = NormKind::kRmsNorm}),
        attn_(s / "attn", {.dim = c.dim,
                           .heads = c.heads,
                           .kv_heads = c.kv_heads,
                           .head_dim = c.head_dim,
                           .bias = c.qkv_bias,
                           .out_bias = false,
                           .rotary = c.rotary,
                           .qk_norm_eps = c.qk_norm ? c.norm_eps : 0,
                           .window = c.window}),
        norm2_(s / "norm2", {.dim = c.dim, .kind = NormKind::kRmsNorm}),
        mlp_(s / "mlp", {.dim = c.dim, .hidden = c.ffn}) {}
  Var operator()(Var x) override {
    const auto [y, normed] = norm2_.Add(x, attn_(norm1_(x)));
    return y + mlp_(normed);
  }

 private:
  Norm norm1_;
  Attention attn_;
  Norm norm2_;
  GatedMlp mlp_;
};

std::unique_ptr<Sequential> BuildMarkedGpt(const Scope& s, const GptConfig& c) {
  auto model = std::make_unique<Sequential>(s);
  model->Prologue<MarkedEmbedding>(
      "embed", {.vocab = c.vocab, .dim = c.dim, .positions = c.max_seq});
  for (int64_t i = 0; i < c.layers; ++i) model->Block<GptLikeBlock>(c);
  model->Epilogue<LmHead>({.dim = c.dim,
                           .vocab = c.vocab,
                           .tied_to = c.tied ? "embed/token/weight" : ""});
  return model;
}

std::unique_ptr<Sequential> BuildMarkedLlama(const Scope& s,
                                             const LlamaConfig& c) {
  auto model = std::make_unique<Sequential>(s);
  model->Prologue<MarkedEmbedding>("embed", {.vocab = c.vocab, .dim = c.dim});
  for (int64_t i = 0; i < c.layers; ++i) model->Block<LlamaLikeBlock>(c);
  model->Epilogue<LmHead>({.dim = c.dim,
                           .vocab = c.vocab,
                           .tied_to = c.tied ? "embed/token/weight" : "",
                           .norm = NormKind::kRmsNorm,
                           .z_loss = c.z_loss});
  return model;
}

}  // namespace

ModelList MarkedModels() {
  ModelList models;
  AddModel(models, GptKind(), BuildMarkedGpt);
  AddModel(models, LlamaKind(), BuildMarkedLlama);
  return models;
}

std::string MarkedText(int64_t sequences, int64_t length) {
  const char* const words[] = {"slab ", "of ", "layers ", "a ", "link ", "."};
  const auto bytes = static_cast<size_t>(sequences * length);
  std::string text;
  uint32_t random = 1;
  while (text.size() < bytes) {
    random = random * 1664525 + 1013904223;
    text += words[(random >> 16) % 6];
  }
  text.resize(bytes);
  text[bytes / 2] = kMark;
  return text;
}

}  // namespace delink::testing
