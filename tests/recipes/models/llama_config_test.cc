// The keys of `kind = "llama"`: what is resolved, what is refused and how, and
// that what is saved reads back.
#include "recipes/models/llama_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "recipes/schema/recipe_io.h"

namespace delink::llama_config_test {
namespace {

using ::testing::HasSubstr;

constexpr char kRecipe[] = R"([model]
kind = "llama"
layers = 2
dim = 512
heads = 8

[data]
train = "corpus/train"
seq = 64
batch = 8

[optimizer]
lr = 1e-3

[schedule]
steps = 100
)";

absl::StatusOr<Recipe> Parse(const std::vector<std::string>& sets) {
  return ParseRecipe(kRecipe, "llama.toml", "/data", sets, {LlamaKind()});
}

LlamaConfig ConfigOf(const std::vector<std::string>& sets) {
  const absl::StatusOr<Recipe> recipe = Parse(sets);
  EXPECT_TRUE(recipe.ok()) << recipe.status();
  return *dynamic_cast<const LlamaConfig*>(recipe->model.get());
}

std::string ErrorOf(const std::vector<std::string>& sets) {
  const absl::StatusOr<Recipe> recipe = Parse(sets);
  EXPECT_FALSE(recipe.ok());
  EXPECT_EQ(recipe.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(recipe.status().message());
}

TEST(LlamaConfig, OmittedKeys) {
  const LlamaConfig c = ConfigOf({});
  EXPECT_EQ(c.kv_heads, 8);
  EXPECT_EQ(c.head_dim, 64);
  EXPECT_EQ(c.ffn, 1536);
  EXPECT_EQ(c.max_seq, 64);
  EXPECT_EQ(c.rotary.base, 10'000);
  EXPECT_EQ(c.rotary.pairing, RotaryPairing::kHalf);
  EXPECT_EQ(c.rotary.scaling, ops::RotaryScaling::kNone);
  EXPECT_FALSE(c.tied || c.qk_norm || c.qkv_bias);
  EXPECT_EQ(c.window, 0);
  EXPECT_EQ(c.z_loss, 0);
}

// Of Llama 2: 7B, 13B; of Llama 1: 33B.
TEST(LlamaConfig, WidthOfTheMlpIsLlamas) {
  EXPECT_EQ(LlamaConfig::DefaultFfn(4096), 11008);
  EXPECT_EQ(LlamaConfig::DefaultFfn(5120), 13824);
  EXPECT_EQ(LlamaConfig::DefaultFfn(6656), 17920);
}

TEST(LlamaConfig, EveryKeyIsReadAndSaved) {
  const std::vector<std::string> sets = {
      "model.kv_heads=2",
      "model.head_dim=48",
      "model.ffn=100",
      "model.norm_eps=1e-6",
      "model.rope_theta=500_000",
      "model.rope_pairing=interleaved",
      "model.rope_scaling={kind=\"llama3\",factor=8,low_freq_factor=2.0,"
      "high_freq_factor=5.0,original_max_seq=4096}",
      "model.qk_norm=true",
      "model.qkv_bias=true",
      "model.window=32",
      "model.tied=true",
      "model.z_loss=1e-4",
      "model.dropout=0.1",
      "model.init_std=0.01"};
  const auto expect = [](const LlamaConfig& c) {
    EXPECT_EQ(c.kv_heads, 2);
    EXPECT_EQ(c.head_dim, 48);
    EXPECT_EQ(c.ffn, 100);
    EXPECT_EQ(c.norm_eps, 1e-6);
    EXPECT_EQ(c.rotary.base, 500'000);
    EXPECT_EQ(c.rotary.pairing, RotaryPairing::kInterleaved);
    EXPECT_EQ(c.rotary.scaling, ops::RotaryScaling::kLlama3);
    EXPECT_EQ(c.rotary.factor, 8);
    EXPECT_EQ(c.rotary.low_freq_factor, 2);
    EXPECT_EQ(c.rotary.high_freq_factor, 5);
    EXPECT_EQ(c.rotary.original_length, 4096);
    EXPECT_TRUE(c.qk_norm && c.qkv_bias && c.tied);
    EXPECT_EQ(c.window, 32);
    EXPECT_EQ(c.z_loss, 1e-4);
    EXPECT_EQ(c.dropout, 0.1);
    EXPECT_EQ(c.init_std, 0.01);
  };
  const absl::StatusOr<Recipe> recipe = Parse(sets);
  ASSERT_TRUE(recipe.ok()) << recipe.status();
  expect(*dynamic_cast<const LlamaConfig*>(recipe->model.get()));
  const std::string saved = ToToml(*recipe);
  const auto again =
      ParseRecipe(saved, "saved.toml", "/elsewhere", {}, {LlamaKind()});
  ASSERT_TRUE(again.ok()) << again.status();
  expect(*dynamic_cast<const LlamaConfig*>(again->model.get()));
  EXPECT_EQ(ToToml(*again), saved);
}

TEST(LlamaConfig, WhatIsWrongIsSaid) {
  EXPECT_EQ(ErrorOf({"model.kv_heads=3"}),
            "--set model.kv_heads=3: model.kv_heads: 3 does not divide heads "
            "8");
  EXPECT_EQ(ErrorOf({"model.heads=6"}),
            "--set model.heads=6: model.heads: 6 does not divide dim 512, and "
            "there is no head_dim");
  EXPECT_EQ(ConfigOf({"model.heads=6", "model.head_dim=10"}).head_dim, 10);
  EXPECT_EQ(ErrorOf({"model.qk_norm_over=all"}),
            "--set model.qk_norm_over=all: model.qk_norm_over: has no effect "
            "without qk_norm");
  EXPECT_EQ(
      ErrorOf(
          {"model.qk_norm=true", "model.qk_norm_over=all", "model.kv_heads=2"}),
      "--set model.qk_norm_over=all: model.qk_norm_over: \"all\" needs as "
      "many kv_heads as heads, but they are 2 and 8");
  EXPECT_THAT(ErrorOf({"model.qk_norm=true", "model.qk_norm_over=all",
                       "stage=[{parallel={tensor=2}}]"}),
              HasSubstr("a norm is over heads of all tensor ranks"));
  for (const std::string size : {"7", "258"}) {
    EXPECT_EQ(ErrorOf({"model.head_dim=" + size}),
              "--set model.head_dim=" + size + ": model.head_dim: " + size +
                  ": rotary positions need an even number, at most 256");
  }
  EXPECT_EQ(ErrorOf({"model.rope_scaling.factor=2"}),
            "--set model.rope_scaling.factor=2: model.rope_scaling.factor: has "
            "no effect with kind \"none\"");
  EXPECT_EQ(ErrorOf({"model.head_dim=2", "model.rope_scaling.kind=ntk"}),
            "--set model.rope_scaling.kind=ntk: model.rope_scaling.kind: "
            "\"ntk\" needs heads of more than 2");
  EXPECT_EQ(ErrorOf({"model.rope_scaling.kind=llama3",
                     "model.rope_scaling.high_freq_factor=1.0"}),
            "--set model.rope_scaling.high_freq_factor=1.0: "
            "model.rope_scaling.high_freq_factor: 1 is not above "
            "low_freq_factor 1");
  EXPECT_NE(ErrorOf({"model.rope_scaling.kind=yarn"}).find("\"llama3\""),
            std::string::npos);
  EXPECT_NE(ErrorOf({"model.rope_scale.kind=ntk"})
                .find("did you mean 'rope_scaling'?"),
            std::string::npos);
}

}  // namespace
}  // namespace delink::llama_config_test
