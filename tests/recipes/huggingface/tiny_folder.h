// Hugging Face folders of tiny models, written by hand: their names, shapes and
// configs are what `transformers` has of each family, and not what our tables
// say.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "recipes/models/model_list.h"

namespace delink::testing {

struct StoredTensor {
  std::vector<int64_t> shape;
  std::vector<float> values;
  std::string dtype = "F32";  // or BF16, F16: rounded; else bytes of nothing

  // What a reader gets of the values.
  std::vector<float> Widened() const;
};

struct TinyFolder {
  nlohmann::json config;
  std::map<std::string, StoredTensor> tensors;

  // Normal numbers that go by the name.
  void Add(const std::string& name, const std::vector<int64_t>& shape);
  // As one file, or as many shards with their index.
  void Write(const std::string& path, int shards = 1) const;
  // Every name without the prefix, as of a model without a head.
  void DropPrefix(const std::string& prefix);
};

// Sizes of recipes/tiny.toml and tiny_llama.toml: 4 layers of width 32, 4 heads
// (of width 12, 2 of them of keys and values, in a llama), 257 tokens. Tied,
// but for "llama" and "mistral".
TinyFolder TinyGpt2();
TinyFolder TinyLlama(const std::string& model_type);  // of the four families
// By model_type.
TinyFolder TinyOf(const std::string& model_type);

inline constexpr const char* kModelTypes[] = {"gpt2", "llama", "mistral",
                                              "qwen2", "qwen3"};
// What of recipes/tiny.toml or tiny_llama.toml must be otherwise for a model to
// be the folder's.
std::string RecipeOf(const std::string& model_type);
std::vector<std::string> SetsOf(const std::string& model_type);

}  // namespace delink::testing
