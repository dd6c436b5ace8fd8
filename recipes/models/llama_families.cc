#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "recipes/models/huggingface_families.h"
#include "recipes/models/llama_traits.h"

namespace delink {
namespace {

using huggingface::ConfigReader;
using huggingface::Family;
using Window = LlamaTraits::Window;

constexpr LlamaTraits kFamilies[] = {
    {.model_type = "llama",
     .architecture = "LlamaForCausalLM",
     .window = Window::kNone,
     .dim_of_heads = true},
    {.model_type = "mistral",
     .architecture = "MistralForCausalLM",
     .window = Window::kAlways,
     .kv_heads = 8},
    {.model_type = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .window = Window::kByLayer,
     .qkv_bias = true,
     .kv_heads = 32},
    {.model_type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .window = Window::kByLayer,
     .qk_norm = true,
     .kv_heads = 32,
     .head_dim = 128},
};

Family FamilyOf(const LlamaTraits& traits) {
  return {.model_type = traits.model_type,
          .architecture = traits.architecture,
          .kind = "llama",
          .prefix = "model.",
          .tensors = LlamaTensors(),
          .buffers = LlamaBuffers(),
          .read = [traits](ConfigReader& c) { return ReadLlama(c, traits); },
          .write =
              [traits](const ModelConfig& c, nlohmann::ordered_json& out) {
                return WriteLlama(ConfigAs<LlamaConfig>(c), traits, out);
              },
          .own_keys = {"dropout", "init_std", "z_loss"},
          .interleaved =
              [](const ModelConfig& c) {
                return InterleavedWidth(ConfigAs<LlamaConfig>(c));
              }};
}

}  // namespace

std::vector<Family> LlamaFamilies() {
  std::vector<Family> families;
  for (const LlamaTraits& traits : kFamilies) {
    families.push_back(FamilyOf(traits));
  }
  return families;
}

}  // namespace delink
