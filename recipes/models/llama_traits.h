// What families of Hugging Face models with Llama's blocks have in common.
// Private to recipes/models.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "recipes/huggingface/config_reader.h"
#include "recipes/huggingface/family.h"
#include "recipes/models/llama_config.h"

namespace delink {

// The differences between the families. Defaults of missing keys are those of
// `transformers`.
struct LlamaTraits {
  // Which keys say how far a token sees: none; sliding_window; that with
  // max_window_layers or layer_types, where use_sliding_window says so, or
  // always.
  enum class Window : uint8_t { kNone, kAlways, kByLayer, kFromLayer };

  const char* model_type;
  const char* architecture;
  Window window;
  bool qkv_bias = false;
  bool qk_norm = false;
  bool qk_norm_over_all = false;
  int64_t kv_heads = 0;  // 0: heads
  int64_t head_dim = 0;  // 0: dim / heads
  // Whether dim must be a multiple of heads even if the config has head_dim.
  bool dim_of_heads = false;
  double norm_eps = 1e-6;
  double rope_theta = 1e4;
};

std::unique_ptr<LlamaConfig> ReadLlama(huggingface::ConfigReader& theirs,
                                       const LlamaTraits& family);
// InvalidArgument as Family::write.
absl::Status WriteLlama(const LlamaConfig& ours, const LlamaTraits& family,
                        nlohmann::ordered_json& theirs);
// Of a whole model, with the MLP of a block.
std::vector<huggingface::TensorRule> LlamaTensors();
// Of buffers that old versions stored.
std::vector<std::string> LlamaBuffers();
// Family::interleaved.
int64_t InterleavedWidth(const LlamaConfig& ours);

}  // namespace delink
