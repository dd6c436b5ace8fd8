// The whole llama model against central differences, over the settings of the
// families it stands for, and in f32 against f64.
#include "recipes/models/llama.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/recipes/models/model_checks.h"
#include "tests/testing/gradcheck.h"

namespace delink::llama_test {
namespace {

using ops::RotaryScaling;
using ::testing::ElementsAre;
using testing::ModelRunner;

LlamaConfig Tiny() {
  auto c = testing::Sized<LlamaConfig>({.max_seq = 6, .kv_heads = 2, .ffn = 9});
  c.head_dim = 4;
  c.rotary.base = 100;
  c.init_std = 0.4;
  return c;
}

ModelRunner::Build Builder(const LlamaConfig& c) {
  return [c](const Scope& s) { return BuildLlama(s, c); };
}

struct Variant {
  std::string name;
  LlamaConfig config = Tiny();
  int ignore_every = 0;
  bool share = false;
};

Variant Plain() {
  Variant v{.name = "Llama2"};
  v.config.kv_heads = 4;
  v.config.head_dim = 2;
  return v;
}

Variant Llama3() {
  Variant v{.name = "Llama3", .ignore_every = 3};
  v.config.head_dim = 6;
  v.config.rotary.pairing = RotaryPairing::kInterleaved;
  v.config.rotary.scaling = RotaryScaling::kLlama3;
  v.config.rotary.factor = 4;
  v.config.rotary.high_freq_factor = 3;
  v.config.rotary.original_length = 40;
  return v;
}

Variant Qwen2() {
  Variant v{.name = "Qwen2"};
  v.config.qkv_bias = true;
  v.config.tied = true;
  v.config.rotary.scaling = RotaryScaling::kNtk;
  v.config.rotary.factor = 2;
  return v;
}

Variant Qwen3() {
  Variant v{.name = "Qwen3Dropout"};
  v.config.qk_norm = true;
  v.config.head_dim = 6;
  v.config.kv_heads = 1;
  v.config.dropout = 0.2;
  return v;
}

Variant Olmoe() {
  Variant v{.name = "NormOverAllHeads"};
  v.config.qk_norm = true;
  v.config.qk_norm_over = LlamaConfig::QkNormOver::kAll;
  v.config.kv_heads = v.config.heads;
  v.config.rotary.pairing = RotaryPairing::kInterleaved;
  return v;
}

Variant Mistral() {
  Variant v{.name = "MistralZLoss", .ignore_every = 4};
  v.config.window = 2;
  v.config.z_loss = 0.1;
  v.config.rotary.scaling = RotaryScaling::kLinear;
  v.config.rotary.factor = 3;
  return v;
}

Variant Everything() {
  Variant v{.name = "EverythingSharedTied", .ignore_every = 5, .share = true};
  v.config.layers = 3;
  v.config.qk_norm = true;
  v.config.qkv_bias = true;
  v.config.window = 3;
  v.config.tied = true;
  v.config.z_loss = 0.05;
  v.config.rotary.pairing = RotaryPairing::kInterleaved;
  // Norms of short vectors bend too much for central differences.
  v.config.norm_eps = 1e-2;
  return v;
}

class LlamaGradients : public ::testing::TestWithParam<Variant> {};

TEST_P(LlamaGradients, MatchCentralDifferences) {
  const Variant& v = GetParam();
  testing::ExpectModelGradients(
      Builder(v.config),
      testing::RandomBatch(2, 5, v.config.vocab, v.ignore_every),
      v.share ? testing::AllShared(v.config) : SharingMap());
}

INSTANTIATE_TEST_SUITE_P(Families, LlamaGradients,
                         ::testing::Values(Plain(), Llama3(), Qwen2(), Qwen3(),
                                           Olmoe(), Mistral(), Everything()),
                         [](const auto& info) { return info.param.name; });

// Both pairings under every scaling, in one layer.
TEST(LlamaGradients, OfEveryRotary) {
  for (const RotaryPairing pairing :
       {RotaryPairing::kHalf, RotaryPairing::kInterleaved}) {
    for (const RotaryScaling scaling :
         {RotaryScaling::kNone, RotaryScaling::kLinear, RotaryScaling::kNtk,
          RotaryScaling::kLlama3}) {
      SCOPED_TRACE(static_cast<int>(pairing));
      SCOPED_TRACE(static_cast<int>(scaling));
      LlamaConfig c = Tiny();
      c.layers = 1;
      c.dim = 4;
      c.heads = 2;
      c.kv_heads = 1;
      c.ffn = 3;
      c.rotary.pairing = pairing;
      c.rotary.scaling = scaling;
      c.rotary.factor = 4;
      c.rotary.original_length = 30;
      testing::ExpectModelGradients(Builder(c),
                                    testing::RandomBatch(1, 6, c.vocab));
    }
  }
}

TEST(Llama, LogicalNamesAndParts) {
  LlamaConfig c = Tiny();
  c.layers = 1;
  EXPECT_THAT(
      testing::Declared(Builder(c)),
      ElementsAre("embed/token/weight embedding [11, 8] d",
                  "blocks/0/norm1/weight norm [8]",
                  "blocks/0/attn/qkv/weight attention [32, 8] d",
                  "blocks/0/attn/out/weight attention [8, 16] d",
                  "blocks/0/norm2/weight norm [8]",
                  "blocks/0/mlp/gate_up/weight mlp [18, 8] d",
                  "blocks/0/mlp/down/weight mlp [8, 9] d",
                  "norm/weight norm [8]", "head/weight head [11, 8] d"));
  c.tied = c.qk_norm = c.qkv_bias = true;
  EXPECT_THAT(testing::Declared(Builder(c)),
              ElementsAre("embed/token/weight embedding [11, 8] d",
                          "blocks/0/norm1/weight norm [8]",
                          "blocks/0/attn/qkv/weight attention [32, 8] d",
                          "blocks/0/attn/qkv/bias attention [32]",
                          "blocks/0/attn/q_norm/weight attention [4]",
                          "blocks/0/attn/k_norm/weight attention [4]",
                          "blocks/0/attn/out/weight attention [8, 16] d",
                          "blocks/0/norm2/weight norm [8]",
                          "blocks/0/mlp/gate_up/weight mlp [18, 8] d",
                          "blocks/0/mlp/down/weight mlp [8, 9] d",
                          "norm/weight norm [8]",
                          "head/weight embedding [11, 8] d link"));
}

TEST(Llama, InitialWeights) {
  LlamaConfig c = Everything().config;
  c.layers = 2;
  c.dim = 64;
  c.ffn = 256;
  c.head_dim = 16;
  c.init_std = 0.02;
  ModelRunner model(Builder(c), testing::RandomBatch(1, 2, c.vocab), {});
  testing::ExpectInitialWeights(model);
}

TEST(Llama, EveryOptionChangesTheFunction) {
  const auto batch = testing::RandomBatch(2, 6, Tiny().vocab);
  const auto loss = [&](const LlamaConfig& c) {
    const LossRecord record = ModelRunner(Builder(c), batch, {}).Loss();
    return record.loss_sum + record.z_sum;
  };
  std::vector<double> losses = {loss(Tiny())};
  std::vector<LlamaConfig> others(7, Tiny());
  others[0].rotary.base = 7;
  others[1].rotary.pairing = RotaryPairing::kInterleaved;
  others[2].rotary.scaling = RotaryScaling::kLinear;
  others[2].rotary.factor = 3;
  others[3].qk_norm = true;
  others[4].window = 2;
  others[5].z_loss = 0.1;
  others[6].norm_eps = 0.5;
  for (const LlamaConfig& c : others) {
    const double other = loss(c);
    for (const double before : losses) {
      EXPECT_GT(std::abs(other - before), 1e-5 * other) << losses.size();
    }
    losses.push_back(other);
  }
}

TEST(Llama, AWindowAsLongAsTheSequenceIsNone) {
  const auto batch = testing::RandomBatch(2, 5, Tiny().vocab);
  LlamaConfig c = Tiny();
  const double whole = ModelRunner(Builder(c), batch, {}).Loss().loss_sum;
  c.window = 5;
  EXPECT_EQ(ModelRunner(Builder(c), batch, {}).Loss().loss_sum, whole);
  c.window = 4;
  EXPECT_NE(ModelRunner(Builder(c), batch, {}).Loss().loss_sum, whole);
}

// The z-loss is minimised and not reported.
TEST(Llama, ZLossIsApart) {
  const auto batch = testing::RandomBatch(2, 5, Tiny().vocab);
  LlamaConfig c = Tiny();
  const LossRecord plain = ModelRunner(Builder(c), batch, {}).Loss();
  c.z_loss = 0.1;
  const LossRecord with = ModelRunner(Builder(c), batch, {}).Loss();
  EXPECT_EQ(with.loss_sum, plain.loss_sum);
  EXPECT_EQ(plain.z_sum, 0);
  EXPECT_GT(with.z_sum, 0);
}

TEST(Llama, DropoutIsOffInEvaluation) {
  LlamaConfig c = Tiny();
  c.dropout = 0.5;
  testing::ExpectDropoutIsOffInEvaluation(Builder(Tiny()), Builder(c), 11);
}

TEST(Llama, AccumulationDoublesGradients) {
  const LlamaConfig c = Everything().config;
  testing::ExpectAccumulationDoublesGradients(Builder(c), c.vocab);
}

TEST(Llama, SinglePrecisionFollowsDouble) {
  LlamaConfig c = Everything().config;
  c.dim = 48;
  c.heads = 6;
  c.kv_heads = 3;
  c.head_dim = 10;
  c.ffn = 100;
  c.vocab = 131;
  c.max_seq = 37;
  c.window = 13;
  c.init_std = 0.1;
  c.dropout = 0.1;
  testing::ExpectSinglePrecisionFollowsDouble(Builder(c));
}

}  // namespace
}  // namespace delink::llama_test
