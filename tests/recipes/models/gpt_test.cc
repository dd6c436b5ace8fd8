// The whole gpt model against central differences, and in f32 against f64.
#include "recipes/models/gpt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "recipes/models/model_list.h"
#include "tests/recipes/models/model_checks.h"
#include "tests/testing/gradcheck.h"

namespace delink::gpt_test {
namespace {

using ::testing::ElementsAre;
using testing::ModelRunner;

GptConfig Tiny() {
  auto c = testing::Sized<GptConfig>({.max_seq = 6});
  c.init_std = 0.4;
  return c;
}

ModelRunner::Build Builder(const GptConfig& c) {
  return [c](const Scope& s) { return BuildGpt(s, c); };
}

struct Variant {
  std::string name;
  GptConfig config;
  int ignore_every = 0;
  bool share = false;
};

std::vector<Variant> Variants() {
  std::vector<Variant> all(6, {.config = Tiny()});
  all[0].name = "Tied";
  all[1].name = "UntiedIgnoringTargets";
  all[1].config.tied = false;
  all[1].ignore_every = 3;
  all[2].name = "RmsNormGroupedQueriesGeluErf";
  all[2].config.norm = NormKind::kRmsNorm;
  all[2].config.kv_heads = 2;
  all[2].config.activation = GeluForm::kErf;
  all[3].name = "DropoutWithoutBias";
  all[3].config.dropout = 0.3;
  all[3].config.bias = false;
  all[4].name = "SharedLayers";
  all[4].share = true;
  all[4].config.layers = 3;
  all[5].name = "OneKeyHeadUntiedDropout";
  all[5].config.kv_heads = 1;
  all[5].config.tied = false;
  all[5].config.dropout = 0.2;
  return all;
}

class GptGradients : public ::testing::TestWithParam<Variant> {};

TEST_P(GptGradients, MatchCentralDifferences) {
  const Variant& v = GetParam();
  SharingMap sharing;
  if (v.share) {
    const std::vector<int> first(static_cast<size_t>(v.config.layers), 0);
    sharing.leaders = {{"attention", first}, {"mlp", first}};
  }
  testing::ExpectModelGradients(
      Builder(v.config),
      testing::RandomBatch(2, 5, v.config.vocab, v.ignore_every), sharing);
}

INSTANTIATE_TEST_SUITE_P(All, GptGradients, ::testing::ValuesIn(Variants()),
                         [](const auto& info) { return info.param.name; });

TEST(Gpt, LogicalNamesAndParts) {
  GptConfig c = Tiny();
  c.layers = 1;
  EXPECT_THAT(
      testing::Declared(Builder(c)),
      ElementsAre(
          "embed/token/weight embedding [11, 8] d",
          "embed/position/weight position [6, 8] d",
          "blocks/0/norm1/weight norm [8]", "blocks/0/norm1/bias norm [8]",
          "blocks/0/attn/qkv/weight attention [24, 8] d",
          "blocks/0/attn/qkv/bias attention [24]",
          "blocks/0/attn/out/weight attention [8, 8] d",
          "blocks/0/attn/out/bias attention [8]",
          "blocks/0/norm2/weight norm [8]", "blocks/0/norm2/bias norm [8]",
          "blocks/0/mlp/up/weight mlp [12, 8] d",
          "blocks/0/mlp/up/bias mlp [12]",
          "blocks/0/mlp/down/weight mlp [8, 12] d",
          "blocks/0/mlp/down/bias mlp [8]", "norm/weight norm [8]",
          "norm/bias norm [8]", "head/weight embedding [11, 8] d link"));
  c.tied = false;
  EXPECT_EQ(testing::Declared(Builder(c)).back(), "head/weight head [11, 8] d");
}

TEST(Gpt, InitialWeights) {
  GptConfig c = Tiny();
  c.dim = 64;
  c.ffn = 256;
  c.init_std = 0.02;
  ModelRunner model(Builder(c), testing::RandomBatch(1, 2, c.vocab), {});
  testing::ExpectInitialWeights(model);
}

TEST(Gpt, AccumulationDoublesGradients) {
  testing::ExpectAccumulationDoublesGradients(Builder(Tiny()), 11);
}

TEST(Gpt, DropoutIsOffInEvaluation) {
  GptConfig c = Tiny();
  c.dropout = 0.5;
  testing::ExpectDropoutIsOffInEvaluation(Builder(Tiny()), Builder(c), 11);
}

TEST(Gpt, SinglePrecisionFollowsDouble) {
  GptConfig c = Tiny();
  c.layers = 3;
  c.dim = 48;
  c.heads = 6;
  c.kv_heads = 3;
  c.ffn = 100;
  c.vocab = 131;
  c.max_seq = 37;
  c.init_std = 0.1;
  c.dropout = 0.1;
  testing::ExpectSinglePrecisionFollowsDouble(Builder(c));
}

TEST(ModelList, BuildsByKind) {
  const ModelList models = BuiltInModels();
  ASSERT_EQ(KindsOf(models).size(), 3U);
  EXPECT_EQ(KindsOf(models)[0].name, "gpt");
  EXPECT_EQ(KindsOf(models)[1].name, "llama");
  EXPECT_EQ(KindsOf(models)[2].name, "moe");
  ParamRegistry registry;
  EXPECT_EQ(BuildModel(models, Scope(registry), Tiny())->blocks(), 2);
}

}  // namespace
}  // namespace delink::gpt_test
