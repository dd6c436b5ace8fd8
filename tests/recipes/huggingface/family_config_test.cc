// Configs of each family, both ways, and those that no model of ours has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "recipes/huggingface/as_recipe.h"
#include "recipes/huggingface/config_reader.h"
#include "recipes/models/gpt_config.h"
#include "recipes/models/llama_config.h"
#include "recipes/models/model_list.h"
#include "tests/recipes/huggingface/tiny_folder.h"

namespace delink::testing::family_config_test {
namespace {

using huggingface::ConfigReader;
using huggingface::Family;
using ::testing::AllOf;
using ::testing::HasSubstr;

const Family& FamilyOf(const std::string& model_type) {
  static const ModelList* const kModels = new ModelList(BuiltInModels());
  for (const Family* family : FamiliesOf(*kModels)) {
    if (family->model_type == model_type) return *family;
  }
  ADD_FAILURE() << model_type;
  std::abort();
}

std::unique_ptr<ModelConfig> Read(const nlohmann::json& config) {
  ConfigReader reader("config.json", config);
  std::unique_ptr<ModelConfig> ours =
      FamilyOf(config["model_type"]).read(reader);
  const absl::Status status = reader.Finish();
  EXPECT_TRUE(status.ok()) << std::string(status.message());
  return ours;
}

LlamaConfig ReadLlama(const nlohmann::json& config) {
  return dynamic_cast<const LlamaConfig&>(*Read(config));
}

// What is said of a tiny config with some keys otherwise.
std::string Refused(const std::string& model_type,
                    const nlohmann::json& changes) {
  nlohmann::json config = TinyOf(model_type).config;
  for (const auto& [key, value] : changes.items()) config[key] = value;
  ConfigReader reader("config.json", config);
  FamilyOf(model_type).read(reader);
  return std::string(reader.Finish().message());
}

std::string AsText(const ModelConfig& config) {
  return *huggingface::AsRecipe(config, "test");
}

TEST(FamilyConfig, EveryFamilyComesInAsItIs) {
  for (const std::string type : kModelTypes) {
    SCOPED_TRACE(type);
    const std::unique_ptr<ModelConfig> ours = Read(TinyOf(type).config);
    EXPECT_EQ(ours->layers, 4);
    EXPECT_EQ(ours->vocab, 257);
    EXPECT_EQ(ours->max_seq, 32);
    EXPECT_TRUE(huggingface::AsRecipe(*ours, "test").ok());
  }
  const LlamaConfig llama = ReadLlama(TinyLlama("llama").config);
  EXPECT_EQ(llama.heads, 4);
  EXPECT_EQ(llama.kv_heads, 2);
  EXPECT_EQ(llama.head_dim, 12);
  EXPECT_EQ(llama.ffn, 80);
  EXPECT_EQ(llama.norm_eps, 1e-6);
  EXPECT_FALSE(llama.tied);
  EXPECT_EQ(llama.rotary.base, 500000);
  EXPECT_EQ(llama.rotary.scaling, ops::RotaryScaling::kLlama3);
  EXPECT_EQ(llama.rotary.factor, 2);
  EXPECT_EQ(llama.rotary.original_length, 16);
  EXPECT_EQ(ReadLlama(TinyLlama("mistral").config).window, 20);
  EXPECT_TRUE(ReadLlama(TinyLlama("qwen2").config).qkv_bias);
  EXPECT_TRUE(ReadLlama(TinyLlama("qwen3").config).qk_norm);
  EXPECT_EQ(ReadLlama(TinyLlama("qwen3").config).window, 0);
}

TEST(FamilyConfig, ThereAndBackIsTheSameModel) {
  for (const std::string type : kModelTypes) {
    SCOPED_TRACE(type);
    const std::unique_ptr<ModelConfig> ours = Read(TinyOf(type).config);
    nlohmann::ordered_json theirs;
    ASSERT_TRUE(FamilyOf(type).write(*ours, theirs).ok());
    theirs["model_type"] = type;
    EXPECT_EQ(AsText(*Read(theirs)), AsText(*ours));
  }
}

// What an older version of transformers takes for a key that is not there.
TEST(FamilyConfig, KeysThatAreNotThereMeanWhatTransformersMeans) {
  nlohmann::json config = TinyLlama("llama").config;
  for (const char* key : {"head_dim", "num_key_value_heads", "rope_theta",
                          "rope_scaling", "tie_word_embeddings"}) {
    config.erase(key);
  }
  const LlamaConfig llama = ReadLlama(config);
  EXPECT_EQ(llama.head_dim, 8);
  EXPECT_EQ(llama.kv_heads, 4);
  EXPECT_EQ(llama.rotary.base, 10000);
  EXPECT_EQ(llama.rotary.scaling, ops::RotaryScaling::kNone);
  EXPECT_FALSE(llama.tied);
  config = TinyLlama("mistral").config;
  config.erase("sliding_window");
  EXPECT_EQ(ReadLlama(config).window, 4096);
  config["sliding_window"] = nullptr;
  EXPECT_EQ(ReadLlama(config).window, 0);
  config = TinyGpt2().config;
  const auto gpt = Read(config);
  EXPECT_TRUE(dynamic_cast<const GptConfig&>(*gpt).tied);
  EXPECT_EQ(dynamic_cast<const GptConfig&>(*gpt).ffn, 128);
}

TEST(FamilyConfig, RotaryPositionsInTheWordsOfOldAndNewVersions) {
  nlohmann::json config = TinyLlama("llama").config;
  const std::string both = AsText(ReadLlama(config));
  nlohmann::json parameters = config["rope_scaling"];
  parameters["rope_theta"] = 500000.0;
  config["rope_parameters"] = parameters;
  EXPECT_EQ(AsText(ReadLlama(config)), both);
  config.erase("rope_scaling");
  config.erase("rope_theta");
  EXPECT_EQ(AsText(ReadLlama(config)), both);
  config = TinyLlama("llama").config;
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
  EXPECT_EQ(ReadLlama(config).rotary.scaling, ops::RotaryScaling::kLinear);
  EXPECT_EQ(ReadLlama(config).rotary.factor, 4);
}

// The oldest version reads rope_theta and rope_scaling, the newest takes
// rope_parameters: what we write says the same to both.
TEST(FamilyConfig, RotaryPositionsGoOutForOldAndNewVersions) {
  for (const auto scaling :
       {ops::RotaryScaling::kNone, ops::RotaryScaling::kLinear,
        ops::RotaryScaling::kLlama3}) {
    LlamaConfig ours = ReadLlama(TinyLlama("llama").config);
    ours.rotary.scaling = scaling;
    if (scaling == ops::RotaryScaling::kNone) ours.rotary.factor = 1;
    if (scaling != ops::RotaryScaling::kLlama3) {
      ours.rotary.original_length = ops::RotaryConfig().original_length;
    }
    nlohmann::ordered_json theirs;
    ASSERT_TRUE(FamilyOf("llama").write(ours, theirs).ok());
    theirs["model_type"] = "llama";
    EXPECT_EQ(AsText(*Read(theirs)), AsText(ours));
    nlohmann::json old = theirs, latest = theirs;
    old.erase("rope_parameters");
    latest.erase("rope_theta");
    latest.erase("rope_scaling");
    EXPECT_EQ(AsText(*Read(old)), AsText(ours));
    EXPECT_EQ(AsText(*Read(latest)), AsText(ours));
  }
}

// There is no such scaling there, but a base that gives the same frequencies.
TEST(FamilyConfig, NtkScalingGoesOutAsALargerBase) {
  LlamaConfig ours = ReadLlama(TinyLlama("mistral").config);
  ours.rotary.scaling = ops::RotaryScaling::kNtk;
  ours.rotary.factor = 4;
  nlohmann::ordered_json theirs;
  ASSERT_TRUE(FamilyOf("mistral").write(ours, theirs).ok());
  EXPECT_TRUE(theirs["rope_scaling"].is_null());
  theirs["model_type"] = "mistral";
  ops::RotaryConfig before = ours.rotary, after = ReadLlama(theirs).rotary;
  before.dim = after.dim = 12;
  const RotaryAngles a = ops::RotaryFrequencies(before);
  const RotaryAngles b = ops::RotaryFrequencies(after);
  for (int i = 0; i < 6; ++i) {
    EXPECT_NEAR(b.inverse_frequency[i] / a.inverse_frequency[i], 1, 1e-12);
  }
}

TEST(FamilyConfig, AModelGoesOutAsTheFirstFamilyThatHasIt) {
  const auto chosen = [](const LlamaConfig& ours) -> std::string {
    for (const char* type : {"llama", "mistral", "qwen2", "qwen3"}) {
      nlohmann::ordered_json theirs;
      if (FamilyOf(type).write(ours, theirs).ok()) return type;
    }
    return "none";
  };
  LlamaConfig ours = ReadLlama(TinyLlama("llama").config);
  EXPECT_EQ(chosen(ours), "llama");
  ours.window = 5;
  EXPECT_EQ(chosen(ours), "mistral");
  ours.qkv_bias = true;
  EXPECT_EQ(chosen(ours), "qwen2");
  ours.qk_norm = true;
  EXPECT_EQ(chosen(ours), "none");
  ours.qkv_bias = false;
  EXPECT_EQ(chosen(ours), "qwen3");
  ours = ReadLlama(TinyLlama("llama").config);
  ours.heads = 6;  // 32 / 6 is no whole number, which transformers' Llama wants
  EXPECT_EQ(chosen(ours), "mistral");
}

TEST(FamilyConfig, WhatNoModelOfGpt2HasIsRefusedWithItsKey) {
  const auto said = [](void (*change)(GptConfig&)) {
    const auto read = Read(TinyGpt2().config);
    auto ours = dynamic_cast<const GptConfig&>(*read);
    change(ours);
    nlohmann::ordered_json theirs;
    const absl::Status status = FamilyOf("gpt2").write(ours, theirs);
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    return std::string(status.message());
  };
  EXPECT_THAT(said([](GptConfig& c) { c.kv_heads = 2; }),
              HasSubstr("model.kv_heads"));
  EXPECT_THAT(said([](GptConfig& c) { c.norm = NormKind::kRmsNorm; }),
              HasSubstr("model.norm"));
  EXPECT_THAT(said([](GptConfig& c) { c.bias = false; }),
              HasSubstr("model.bias"));
}

TEST(FamilyConfig, AWindowOfSomeLayersIsNone) {
  nlohmann::json config = TinyLlama("qwen2").config;
  config["use_sliding_window"] = true;
  config["sliding_window"] = 16;
  config["max_window_layers"] = 0;
  EXPECT_EQ(ReadLlama(config).window, 16);
  config["max_window_layers"] = 4;
  EXPECT_EQ(ReadLlama(config).window, 0);
  config["layer_types"] = std::vector<std::string>(4, "sliding_attention");
  EXPECT_EQ(ReadLlama(config).window, 16);
  config["layer_types"] = std::vector<std::string>(4, "full_attention");
  EXPECT_EQ(ReadLlama(config).window, 0);
  EXPECT_THAT(Refused("qwen2",
                      {{"use_sliding_window", true}, {"max_window_layers", 2}}),
              AllOf(HasSubstr("max_window_layers"), HasSubstr("2 of 4")));
  EXPECT_THAT(Refused("qwen3", {{"layer_types",
                                 {"full_attention", "sliding_attention"}}}),
              HasSubstr("layer_types"));
}

TEST(FamilyConfig, WhatOurModelCannotDoIsRefusedWithItsKeyAndTheReason) {
  const struct {
    const char* type;
    nlohmann::json changes;
    const char* said;
  } cases[] = {
      {"gpt2",
       {{"activation_function", "relu"}},
       "activation_function: is relu"},
      {"gpt2", {{"scale_attn_weights", false}}, "scale_attn_weights: is false"},
      {"gpt2",
       {{"scale_attn_by_inverse_layer_idx", true}},
       "scale_attn_by_inverse_layer_idx: is true"},
      {"gpt2", {{"add_cross_attention", true}}, "add_cross_attention"},
      {"llama", {{"attention_bias", true}}, "attention_bias: is true"},
      {"llama", {{"mlp_bias", true}}, "mlp_bias: is true"},
      {"llama", {{"hidden_act", "gelu"}}, "hidden_act: is gelu"},
      {"llama",
       {{"partial_rotary_factor", 0.5}},
       "partial_rotary_factor: is 0.5"},
      {"llama",
       {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}}},
       "rope_scaling.rope_type: is yarn"},
      {"llama",
       {{"rope_scaling", {{"type", "dynamic"}, {"factor", 4.0}}}},
       "rope_scaling.rope_type: is dynamic"},
      {"llama",
       {{"rope_scaling", {{"type", "linear"}}}},
       "rope_scaling.factor: is missing"},
      {"llama",
       {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e4}}}},
       "rope_parameters: contradicts rope_theta and rope_scaling"},
      {"qwen3", {{"num_experts", 8}}, "num_experts: is 8"},
      {"mistral", {{"vocab_size", nullptr}}, "vocab_size: is missing"},
      {"mistral", {{"hidden_size", "wide"}}, "hidden_size: is \"wide\""},
  };
  for (const auto& [type, changes, said] : cases) {
    EXPECT_THAT(Refused(type, changes),
                HasSubstr(absl::StrCat("config.json: ", said)));
  }
}

// Whatever a key says: a model that a recipe may say, or a reason.
TEST(FamilyConfig, AnyValueOfAnyKeyIsAModelOrRefused) {
  const nlohmann::json values[] = {nullptr,
                                   -1,
                                   0,
                                   1,
                                   2,
                                   int64_t{1} << 31,
                                   INT64_MAX,
                                   UINT64_MAX,
                                   1e308,
                                   -1.5,
                                   0.5,
                                   "",
                                   "linear",
                                   true,
                                   false,
                                   nlohmann::json::array(),
                                   nlohmann::json::array({1, "x"}),
                                   nlohmann::json::object(),
                                   {{"rope_type", "llama3"}},
                                   {{"type", "linear"}, {"factor", -1}}};
  int models = 0, refused = 0;
  for (const std::string type : kModelTypes) {
    const nlohmann::json config = TinyOf(type).config;
    for (const auto& [key, unused] : config.items()) {
      if (key == "model_type") continue;
      for (const nlohmann::json& value : values) {
        nlohmann::json changed = config;
        changed[key] = value;
        ConfigReader reader("config.json", changed);
        const std::unique_ptr<ModelConfig> ours = FamilyOf(type).read(reader);
        absl::Status status = reader.Finish();
        if (status.ok()) status = huggingface::AsRecipe(*ours, "test").status();
        ++(status.ok() ? models : refused);
        if (status.ok()) continue;
        EXPECT_TRUE(absl::IsInvalidArgument(status));
        EXPECT_THAT(std::string(status.message()), HasSubstr(": ")) << key;
      }
    }
  }
  EXPECT_GT(models, 300);
  EXPECT_GT(refused, 300);
}

}  // namespace
}  // namespace delink::testing::family_config_test
