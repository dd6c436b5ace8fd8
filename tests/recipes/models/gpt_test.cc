// The whole gpt model against central differences, and in f32 against f64.
#include "recipes/models/gpt.h"

#include <gtest/gtest.h>

#include <string>

#include "recipes/models/model_list.h"
#include "tests/recipes/models/initial_weights.h"
#include "tests/testing/gradcheck.h"
#include "tests/testing/numbers.h"

namespace delink::gpt_test {
namespace {

using testing::ModelRunner;

GptConfig Tiny() {
  GptConfig c;
  c.layers = 2;
  c.vocab = 11;
  c.max_seq = 6;
  c.dim = 8;
  c.heads = 4;
  c.kv_heads = 4;
  c.ffn = 12;
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
  ParamRegistry registry;
  GptConfig c = Tiny();
  c.layers = 1;
  const auto model = BuildGpt(Scope(registry), c);
  std::vector<std::string> names;
  for (const ParamDecl& decl : registry.decls) {
    names.push_back(decl.name + " " + decl.part + " " +
                    decl.spec.shape.ToString() + (decl.spec.decay ? " d" : "") +
                    (decl.link >= 0 ? " link" : ""));
  }
  EXPECT_EQ(names, (std::vector<std::string>{
                       "embed/token/weight embedding [11, 8] d",
                       "embed/position/weight position [6, 8] d",
                       "blocks/0/norm1/weight norm [8]",
                       "blocks/0/norm1/bias norm [8]",
                       "blocks/0/attn/qkv/weight attention [24, 8] d",
                       "blocks/0/attn/qkv/bias attention [24]",
                       "blocks/0/attn/out/weight attention [8, 8] d",
                       "blocks/0/attn/out/bias attention [8]",
                       "blocks/0/norm2/weight norm [8]",
                       "blocks/0/norm2/bias norm [8]",
                       "blocks/0/mlp/up/weight mlp [12, 8] d",
                       "blocks/0/mlp/up/bias mlp [12]",
                       "blocks/0/mlp/down/weight mlp [8, 12] d",
                       "blocks/0/mlp/down/bias mlp [8]",
                       "norm/weight norm [8]",
                       "norm/bias norm [8]",
                       "head/weight embedding [11, 8] d link",
                   }));
  c.tied = false;
  ParamRegistry untied;
  const auto other = BuildGpt(Scope(untied), c);
  EXPECT_EQ(untied.decls.back().name, "head/weight");
  EXPECT_EQ(untied.decls.back().part, "head");
  EXPECT_EQ(untied.decls.back().link, -1);
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
  const auto batch = testing::RandomBatch(2, 5, 11);
  ModelRunner once(Builder(Tiny()), batch, {});
  ModelRunner twice(Builder(Tiny()), batch, {});
  once.Gradients(1);
  twice.Gradients(2);
  for (const LogicalTensor& tensor : once.tensors()) {
    std::vector<double> expected = once.Values(tensor, Plane::kGradient);
    for (double& g : expected) g *= 2;
    EXPECT_LT(testing::NormError(twice.Values(tensor, Plane::kGradient),
                                 expected, 1e-3),
              1e-13)
        << tensor.name;
  }
}

TEST(Gpt, DropoutIsOffInEvaluation) {
  GptConfig c = Tiny();
  const auto batch = testing::RandomBatch(2, 5, 11);
  const double plain =
      ModelRunner(Builder(c), batch, {}).Loss(/*training=*/true).loss_sum;
  c.dropout = 0.5;
  ModelRunner model(Builder(c), batch, {});
  EXPECT_EQ(model.Loss(/*training=*/false).loss_sum, plain);
  EXPECT_NE(model.Loss(/*training=*/true).loss_sum, plain);
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
  const auto batch = testing::RandomBatch(3, 37, c.vocab, 5);
  ModelRunner f64(Builder(c), batch, {});
  ModelRunner f32(
      Builder(c), batch,
      {.dtype = DType::kF32, .memory = testing::MemoryMode::kPlanned});
  for (const LogicalTensor& tensor : f64.tensors()) {
    f64.SetWeight(tensor, f32.Values(tensor, Plane::kWeight));
  }
  const LossRecord expected = f64.Gradients(), actual = f32.Gradients();
  EXPECT_EQ(actual.tokens, expected.tokens);
  EXPECT_NEAR(actual.loss_sum, expected.loss_sum, 1e-5 * expected.loss_sum);
  for (const LogicalTensor& tensor : f64.tensors()) {
    EXPECT_LT(testing::NormError(f32.Values(tensor, Plane::kGradient),
                                 f64.Values(tensor, Plane::kGradient), 1e-2),
              2e-5)
        << tensor.name;
  }
  EXPECT_LT(testing::NormError(f32.Logits(), f64.Logits()), 1e-5);
}

TEST(ModelList, BuildsByKind) {
  const ModelList models = BuiltInModels();
  ASSERT_EQ(KindsOf(models).size(), 2U);
  EXPECT_EQ(KindsOf(models)[0].name, "gpt");
  EXPECT_EQ(KindsOf(models)[1].name, "llama");
  ParamRegistry registry;
  EXPECT_EQ(BuildModel(models, Scope(registry), Tiny())->blocks(), 2);
}

}  // namespace
}  // namespace delink::gpt_test
