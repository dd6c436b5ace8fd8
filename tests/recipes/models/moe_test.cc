// The whole moe model against central differences, over the settings of the
// families it stands for, and in f32 against f64.
#include "recipes/models/moe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "framework/device/backend.h"
#include "framework/module/param_store.h"
#include "tests/recipes/models/model_checks.h"
#include "tests/testing/gradcheck.h"

namespace delink::moe_test {
namespace {

using ::testing::ElementsAre;
using testing::ModelRunner;

MoeConfig Tiny() {
  MoeConfig c;
  c.layers = 2;
  c.vocab = 11;
  c.max_seq = 6;
  c.llama =
      testing::Sized<LlamaConfig>({.max_seq = 6, .kv_heads = 2, .ffn = 9});
  c.llama.head_dim = 4;
  c.llama.rotary.base = 100;
  c.llama.init_std = 0.4;
  c.gpt = testing::Sized<GptConfig>({.max_seq = 6, .ffn = 9});
  c.gpt.init_std = 0.4;
  c.experts = 4;
  c.expert_ffn = 5;
  return c;
}

ModelRunner::Build Builder(const MoeConfig& c) {
  return [c](const Scope& s) { return BuildMoe(s, c); };
}

struct Variant {
  std::string name;
  MoeConfig config = Tiny();
  int ignore_every = 0;
  bool share = false;
};

Variant Mixtral() {
  Variant v{.name = "Mixtral"};
  v.config.normalise = true;
  return v;
}

Variant Qwen3() {
  Variant v{.name = "Qwen3Shared", .ignore_every = 3, .share = true};
  v.config.before_top_k = false;
  v.config.llama.qk_norm = true;
  v.config.llama.norm_eps = 1e-2;
  v.config.top_k = 3;
  return v;
}

Variant Dots() {
  Variant v{.name = "Dots"};
  v.config.layers = 3;
  v.config.dense_layers = 1;
  v.config.shared_experts = 2;
  v.config.score = MoeConfig::Score::kSigmoid;
  v.config.normalise = true;
  v.config.scale = 2.5;
  v.config.bias_rate = 0.001;
  v.config.experts = 8;
  v.config.groups = 4;
  v.config.top_groups = 2;
  return v;
}

Variant M6() {
  Variant v{.name = "M6Capacity", .ignore_every = 4};
  v.config.block = MoeConfig::Block::kGpt;
  v.config.experts = 6;
  v.config.prototypes = v.config.top_k = 3;
  v.config.capacity = 1;
  v.config.moe_every = 2;
  v.config.shared_experts = 1;
  return v;
}

class MoeGradients : public ::testing::TestWithParam<Variant> {};

TEST_P(MoeGradients, MatchCentralDifferences) {
  const Variant& v = GetParam();
  testing::ExpectModelGradients(
      Builder(v.config),
      testing::RandomBatch(2, 5, v.config.vocab, v.ignore_every),
      v.share ? testing::AllShared(v.config) : SharingMap());
}

INSTANTIATE_TEST_SUITE_P(Families, MoeGradients,
                         ::testing::Values(Mixtral(), Qwen3(), Dots(), M6()),
                         [](const auto& info) { return info.param.name; });

TEST(Moe, LogicalNamesAndParts) {
  MoeConfig c = Dots().config;
  c.layers = 2;
  EXPECT_THAT(
      testing::Declared(Builder(c)),
      ElementsAre("embed/token/weight embedding [11, 8] d",
                  "blocks/0/norm1/weight norm [8]",
                  "blocks/0/attn/qkv/weight attention [32, 8] d",
                  "blocks/0/attn/out/weight attention [8, 16] d",
                  "blocks/0/norm2/weight norm [8]",
                  "blocks/0/mlp/gate_up/weight mlp [18, 8] d",
                  "blocks/0/mlp/down/weight mlp [8, 9] d",
                  "blocks/1/norm1/weight norm [8]",
                  "blocks/1/attn/qkv/weight attention [32, 8] d",
                  "blocks/1/attn/out/weight attention [8, 16] d",
                  "blocks/1/norm2/weight norm [8]",
                  "blocks/1/moe/router/weight router [8, 8] d",
                  "blocks/1/moe/router/bias router [8]",
                  "blocks/1/moe/experts/gate_up/weight experts [8, 10, 8] d",
                  "blocks/1/moe/experts/down/weight experts [8, 8, 5] d",
                  "blocks/1/moe/shared/gate_up/weight shared_experts [20, 8] d",
                  "blocks/1/moe/shared/down/weight shared_experts [8, 10] d",
                  "norm/weight norm [8]", "head/weight head [11, 8] d"));
}

// A token uses some of the experts, and all else.
TEST(Moe, ActiveParameters) {
  MoeConfig c = Dots().config;
  ParamRegistry registry;
  const auto model = BuildMoe(Scope(registry), c);
  int64_t all = 0, active = 0;
  for (const ParamDecl& decl : registry.decls) {
    const int64_t elements = decl.spec.shape.elements();
    const bool experts = decl.part == "experts";
    EXPECT_EQ(decl.spec.used, experts ? c.top_k : 0) << decl.name;
    all += elements;
    active += experts ? elements / c.experts * c.top_k : elements;
  }
  const auto device = NewMetaDevice();
  const auto store = ParamStore::Create(
      *device, Layout::Create(registry, model->blocks(), {}, {}), 0,
      {.gradients = false, .states = {}});
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->virtual_parameters(), all);
  EXPECT_EQ((*store)->active_parameters(), active);
}

}  // namespace
}  // namespace delink::moe_test
