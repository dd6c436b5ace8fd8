#include "tests/recipes/huggingface/tiny_folder.h"

#include <bit>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/check.h"
#include "framework/base/file.h"
#include "framework/tensor/bfloat16.h"
#include "tests/testing/numbers.h"

namespace delink::testing {
namespace {

constexpr int64_t kVocab = 257, kDim = 32, kLayers = 4, kHeads = 4;
constexpr int64_t kKvHeads = 2, kHeadDim = 12, kFfn = 80, kPositions = 32;

// The nearest of a type's numbers, as bits: of normal numbers of fp16 that are
// none of its edges, which is all that tests store.
uint16_t HalfBits(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((u >> 16) & 0x8000);
  const int exponent = static_cast<int>((u >> 23) & 0xFF) - 127 + 15;
  if (exponent <= 0) return sign;
  DELINK_CHECK(exponent < 31);
  const uint32_t mantissa = (u & 0x7FFFFF) + 0xFFF + ((u >> 13) & 1);
  const uint32_t all =
      (static_cast<uint32_t>(exponent) << 10) + (mantissa >> 13);
  return static_cast<uint16_t>(sign | all);
}

float OfHalf(uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1F;
  if (exponent == 0) return (bits & 0x8000) != 0 ? -0.0F : 0.0F;
  const uint32_t u = (static_cast<uint32_t>(bits & 0x8000) << 16) |
                     (static_cast<uint32_t>(exponent - 15 + 127) << 23) |
                     (static_cast<uint32_t>(bits & 0x3FF) << 13);
  return std::bit_cast<float>(u);
}

template <typename T>
void Append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

std::string BytesOf(const StoredTensor& tensor) {
  std::string bytes;
  for (const float value : tensor.values) {
    if (tensor.dtype == "F32") {
      Append(bytes, value);
    } else if (tensor.dtype == "BF16") {
      Append(bytes, BFloat16(value).bits);
    } else if (tensor.dtype == "F16") {
      Append(bytes, HalfBits(value));
    } else if (tensor.dtype == "I64") {
      Append(bytes, static_cast<int64_t>(value));
    } else {
      Append(bytes, static_cast<uint8_t>(value));
    }
  }
  return bytes;
}

using Tensors = std::map<std::string, StoredTensor>;

void WriteTensors(const std::string& path, const Tensors& tensors) {
  nlohmann::json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const std::string bytes = BytesOf(tensor);
    header[name] = {
        {"dtype", tensor.dtype},
        {"shape", tensor.shape},
        {"data_offsets", {data.size(), data.size() + bytes.size()}}};
    data += bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string file;
  Append(file, static_cast<uint64_t>(text.size()));
  DELINK_CHECK(WriteFile(path, file + text + data).ok());
}

void AddGpt2Block(TinyFolder& folder, const std::string& block) {
  for (const char* norm : {"ln_1", "ln_2"}) {
    folder.Add(block + norm + ".weight", {kDim});
    folder.Add(block + norm + ".bias", {kDim});
  }
  const struct {
    const char* name;
    int64_t in, out;
  } linears[] = {{"attn.c_attn", kDim, 3 * kDim},
                 {"attn.c_proj", kDim, kDim},
                 {"mlp.c_fc", kDim, 4 * kDim},
                 {"mlp.c_proj", 4 * kDim, kDim}};
  for (const auto& [name, in, out] : linears) {
    folder.Add(block + name + ".weight", {in, out});
    folder.Add(block + name + ".bias", {out});
  }
}

void AddLlamaBlock(TinyFolder& folder, const std::string& block,
                   const std::string& model_type) {
  folder.Add(block + "input_layernorm.weight", {kDim});
  folder.Add(block + "post_attention_layernorm.weight", {kDim});
  const struct {
    const char* name;
    int64_t heads;
  } projections[] = {{"q", kHeads}, {"k", kKvHeads}, {"v", kKvHeads}};
  for (const auto& [name, heads] : projections) {
    const std::string tensor = block + "self_attn." + name + "_proj.";
    folder.Add(tensor + "weight", {heads * kHeadDim, kDim});
    if (model_type == "qwen2") folder.Add(tensor + "bias", {heads * kHeadDim});
  }
  if (model_type == "qwen3") {
    folder.Add(block + "self_attn.q_norm.weight", {kHeadDim});
    folder.Add(block + "self_attn.k_norm.weight", {kHeadDim});
  }
  folder.Add(block + "self_attn.o_proj.weight", {kDim, kHeads * kHeadDim});
  folder.Add(block + "mlp.gate_proj.weight", {kFfn, kDim});
  folder.Add(block + "mlp.up_proj.weight", {kFfn, kDim});
  folder.Add(block + "mlp.down_proj.weight", {kDim, kFfn});
}

}  // namespace

std::vector<float> StoredTensor::Widened() const {
  std::vector<float> wide = values;
  for (float& value : wide) {
    if (dtype == "BF16") value = BFloat16(value);
    if (dtype == "F16") value = OfHalf(HalfBits(value));
  }
  return wide;
}

void TinyFolder::Add(const std::string& name,
                     const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t d : shape) count *= d;
  // Norms are about 1, so that a forward pass is not flat.
  const bool norm =
      absl::StrContains(name, "norm") || absl::StrContains(name, "ln_");
  StoredTensor tensor{.shape = shape,
                      .values = Normals<float>(name, count, 0.1)};
  if (norm && name.ends_with("weight")) {
    for (float& value : tensor.values) value += 1;
  }
  tensors[name] = std::move(tensor);
}

void TinyFolder::Write(const std::string& path, int shards) const {
  DELINK_CHECK(MakeDirectories(path).ok());
  DELINK_CHECK(
      WriteFile(JoinPath(path, "config.json"), config.dump(2) + "\n").ok());
  if (shards == 1) {
    return WriteTensors(JoinPath(path, "model.safetensors"), tensors);
  }
  std::vector<Tensors> files(static_cast<size_t>(shards));
  nlohmann::json index = {{"metadata", {{"total_size", 0}}}};
  size_t at = 0;
  int64_t total = 0;
  for (const auto& [name, tensor] : tensors) {
    const std::string file =
        absl::StrFormat("model-%05d-of-%05d.safetensors", at + 1, shards);
    index["weight_map"][name] = file;
    total += static_cast<int64_t>(BytesOf(tensor).size());
    files[at][name] = tensor;
    at = (at + 1) % files.size();
  }
  index["metadata"]["total_size"] = total;
  for (size_t i = 0; i < files.size(); ++i) {
    WriteTensors(
        JoinPath(path, absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1,
                                       shards)),
        files[i]);
  }
  DELINK_CHECK(
      WriteFile(JoinPath(path, "model.safetensors.index.json"), index.dump(2))
          .ok());
}

void TinyFolder::DropPrefix(const std::string& prefix) {
  Tensors plain;
  for (auto& [name, tensor] : tensors) {
    const bool has = name.starts_with(prefix);
    plain[has ? name.substr(prefix.size()) : name] = std::move(tensor);
  }
  tensors = std::move(plain);
}

TinyFolder TinyGpt2() {
  TinyFolder folder;
  folder.config = {
      {"model_type", "gpt2"},
      {"architectures", {"GPT2LMHeadModel"}},
      {"activation_function", "gelu_new"},
      {"attn_pdrop", 0.1},
      {"bos_token_id", 256},
      {"embd_pdrop", 0.1},
      {"eos_token_id", 256},
      {"initializer_range", 0.02},
      {"layer_norm_epsilon", 1e-5},
      {"n_ctx", kPositions},
      {"n_embd", kDim},
      {"n_head", kHeads},
      {"n_inner", nullptr},
      {"n_layer", kLayers},
      {"n_positions", kPositions},
      {"resid_pdrop", 0.0},
      {"summary_type", "cls_index"},
      {"summary_use_proj", true},
      {"task_specific_params", {{"text-generation", {{"do_sample", true}}}}},
      {"vocab_size", kVocab}};
  folder.Add("transformer.wte.weight", {kVocab, kDim});
  folder.Add("transformer.wpe.weight", {kPositions, kDim});
  for (int64_t i = 0; i < kLayers; ++i) {
    AddGpt2Block(folder, absl::StrCat("transformer.h.", i, "."));
  }
  folder.Add("transformer.ln_f.weight", {kDim});
  folder.Add("transformer.ln_f.bias", {kDim});
  return folder;
}

TinyFolder TinyLlama(const std::string& model_type) {
  const bool tied = model_type.starts_with("qwen");
  TinyFolder folder;
  folder.config = {{"model_type", model_type},
                   {"attention_dropout", 0.0},
                   {"bos_token_id", 1},
                   {"eos_token_id", 2},
                   {"head_dim", kHeadDim},
                   {"hidden_act", "silu"},
                   {"hidden_size", kDim},
                   {"initializer_range", 0.02},
                   {"intermediate_size", kFfn},
                   {"max_position_embeddings", kPositions},
                   {"num_attention_heads", kHeads},
                   {"num_hidden_layers", kLayers},
                   {"num_key_value_heads", kKvHeads},
                   {"rms_norm_eps", 1e-6},
                   {"rope_theta", 500000.0},
                   {"tie_word_embeddings", tied},
                   {"torch_dtype", "float32"},
                   {"transformers_version", "4.51.0"},
                   {"use_cache", true},
                   {"vocab_size", kVocab}};
  if (model_type == "llama") {
    folder.config["rope_scaling"] = {{"rope_type", "llama3"},
                                     {"factor", 2.0},
                                     {"low_freq_factor", 1.0},
                                     {"high_freq_factor", 4.0},
                                     {"original_max_position_embeddings", 16}};
    folder.config["attention_bias"] = false;
    folder.config["mlp_bias"] = false;
    folder.config["pretraining_tp"] = 1;
  } else if (model_type == "mistral") {
    folder.config["sliding_window"] = 20;
  } else {
    folder.config["use_sliding_window"] = false;
    folder.config["sliding_window"] = 4096;
    folder.config["max_window_layers"] = 2;
  }
  folder.Add("model.embed_tokens.weight", {kVocab, kDim});
  for (int64_t i = 0; i < kLayers; ++i) {
    AddLlamaBlock(folder, absl::StrCat("model.layers.", i, "."), model_type);
  }
  folder.Add("model.norm.weight", {kDim});
  if (!tied) folder.Add("lm_head.weight", {kVocab, kDim});
  return folder;
}

TinyFolder TinyOf(const std::string& model_type) {
  return model_type == "gpt2" ? TinyGpt2() : TinyLlama(model_type);
}

std::string RecipeOf(const std::string& model_type) {
  return model_type == "gpt2" ? "tiny" : "tiny_llama";
}

std::vector<std::string> SetsOf(const std::string& model_type) {
  if (model_type == "gpt2") return {};
  const auto key = [](const char* name, bool value) {
    return absl::StrCat("model.", name, value ? "=true" : "=false");
  };
  std::vector<std::string> sets = {"model.rope_theta=500000.0",
                                   "model.norm_eps=1e-6",
                                   "model.window=0",
                                   key("qkv_bias", model_type == "qwen2"),
                                   key("qk_norm", model_type == "qwen3"),
                                   key("tied", model_type.starts_with("qwen"))};
  if (model_type == "mistral") sets.emplace_back("model.window=20");
  if (model_type != "llama") {
    sets.emplace_back("model.rope_scaling={ kind = \"none\" }");
  }
  return sets;
}

}  // namespace delink::testing
