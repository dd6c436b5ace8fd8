#include "tests/recipes/run/marked_models.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "framework/base/check.h"
#include "layers/modules/embedding.h"
#include "recipes/models/gpt.h"
#include "recipes/models/llama.h"
#include "recipes/models/moe.h"

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

}  // namespace

ModelList MarkedModels() {
  ModelList models;
  AddModel<GptConfig>(models, GptKind(), BuildTransformer<MarkedEmbedding>);
  AddModel<LlamaConfig>(models, LlamaKind(), BuildTransformer<MarkedEmbedding>);
  AddModel<MoeConfig>(models, MoeKind(), BuildTransformer<MarkedEmbedding>);
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
