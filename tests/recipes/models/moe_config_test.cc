// The keys of `kind = "moe"`: what is resolved, what is refused and how, and
// that what is saved reads back.
#include "recipes/models/moe_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "recipes/schema/recipe_io.h"

namespace delink::moe_config_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kRecipe[] = R"([model]
kind = "moe"
layers = 4
dim = 64
heads = 8
experts = 16

[data]
train = "corpus/train"
seq = 64
batch = 8

[optimizer]
lr = 1e-3

[schedule]
steps = 100

[[stage]]
name = "real"
share = "none"
)";

absl::StatusOr<Recipe> Parse(const std::string& text,
                             const std::vector<std::string>& sets) {
  return ParseRecipe(text, "moe.toml", "/data", sets, {MoeKind()});
}

MoeConfig ConfigOf(const std::vector<std::string>& sets) {
  const absl::StatusOr<Recipe> recipe = Parse(kRecipe, sets);
  EXPECT_TRUE(recipe.ok()) << recipe.status();
  return *dynamic_cast<const MoeConfig*>(recipe->model.get());
}

TEST(MoeConfig, DispatchByWhatIsSent) {
  const auto room = [](int64_t expert, const std::string& dispatch) {
    const absl::StatusOr<Recipe> recipe = Parse(
        kRecipe, {"model.top_k=2", "stage.0.parallel.dispatch=" + dispatch,
                  absl::StrCat("stage.0.parallel.expert=", expert)});
    EXPECT_TRUE(recipe.ok()) << recipe.status();
    return recipe->ExpertRoom(0);
  };
  EXPECT_EQ(room(8, "auto"), 2);  // room 2 for 2 choices: less than 8 ranks'
  EXPECT_EQ(room(4, "auto"), 0);
  EXPECT_EQ(room(8, "gather"), 0);
  EXPECT_EQ(room(2, "all-to-all"), 2);
  EXPECT_EQ(room(2, "deduplicated"), 2);
  EXPECT_EQ(room(1, "all-to-all"), 0);
}

TEST(MoeConfig, OmittedKeys) {
  const MoeConfig c = ConfigOf({});
  EXPECT_EQ(c.expert_ffn, c.llama.ffn);
  EXPECT_EQ(c.top_groups, 1);
  EXPECT_EQ(c.max_seq, 64);
  EXPECT_EQ(c.llama.head_dim, 8);
  const ops::RouteConfig route = c.Route();
  EXPECT_EQ(route.top_k, 2);
  EXPECT_EQ(route.form.top_groups, 0);
  EXPECT_EQ(route.capacity, 0);
  EXPECT_EQ(route.aux_loss, 0);
  EXPECT_FALSE(c.bias_rate.has_value());
  EXPECT_THAT(c.parts(), ElementsAre("attention", "norm", "router", "experts"));
}

TEST(MoeConfig, LayersWithExperts) {
  const MoeConfig c = ConfigOf(
      {"model.moe_every=2", "model.dense_layers=2", "model.shared_experts=1"});
  EXPECT_FALSE(c.HasExperts(1));
  EXPECT_FALSE(c.HasExperts(2));
  EXPECT_TRUE(c.HasExperts(3));
  EXPECT_THAT(c.parts(), ElementsAre("attention", "norm", "mlp", "router",
                                     "experts", "shared_experts"));
}

// Of either block, every key.
TEST(MoeConfig, WhatIsSavedReadsBack) {
  for (const std::vector<std::string>& sets :
       std::vector<std::vector<std::string>>{
           {"model.qk_norm=true", "model.rope_scaling.kind=linear",
            "model.rope_scaling.factor=2", "model.router.score=sigmoid",
            "model.router.groups=4", "model.router.top_groups=2",
            "model.router.bias_rate=0"},
           {"model.block=gpt", "model.activation=gelu_erf", "model.bias=false",
            "model.prototypes=4", "model.top_k=4", "model.capacity=1.5",
            "model.router.drop=position", "model.router.aux_over=sequence",
            "model.router.before_top_k=false"}}) {
    const absl::StatusOr<Recipe> recipe = Parse(kRecipe, sets);
    ASSERT_TRUE(recipe.ok()) << recipe.status();
    const std::string saved = ToToml(*recipe);
    const absl::StatusOr<Recipe> again = Parse(saved, {});
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(ToToml(*again), saved);
  }
}

TEST(MoeConfig, Mistakes) {
  const std::pair<std::vector<std::string>, const char*> kMistakes[] = {
      {{"model.prototypes=3"}, "prototypes: 3 does not divide experts 16"},
      {{"model.prototypes=4"}, "prototypes: 4 does not divide top_k 2"},
      {{"model.top_k=17"}, "top_k: 17, but a token can choose 16 at most"},
      {{"model.router.groups=3"},
       "router.groups: 3 does not divide experts 16"},
      {{"model.router.groups=2", "model.router.top_groups=4"},
       "router.top_groups: 4 of 2 groups"},
      {{"model.router.groups=8", "model.router.top_groups=1", "model.top_k=3"},
       "top_k: 3, but a token can choose 2 at most: 2 of experts 16, in 1 of 8 "
       "groups"},
      {{"model.router.score=sigmoid", "model.router.before_top_k=false"},
       "router.before_top_k: has no effect with score \"sigmoid\"; use "
       "normalise"},
      {{"model.moe_every=5"},
       "moe_every: leaves none of 4 blocks with experts"},
      {{"model.dense_layers=4"},
       "dense_layers: leaves none of 4 blocks with experts"},
      {{"model.capacity=-1"},
       "model.capacity: -1 is out of range: at least 0.0"},
      {{"model.block=gpt", "model.qk_norm=true"}, "qk_norm: unknown key"},
      {{"model.experts=0"}, "model.experts: 0 is out of range: 1 to"},
      {{"stage.0.parallel.expert=0"},
       "parallel.expert: 0 is out of range: 1 to 512"},
      {{"stage.0.parallel.dispatch=\"sent\""},
       "\"gather\", \"all-to-all\", \"deduplicated\", got"},
      {{"stage.0.parallel.expert_room=0"},
       "parallel.expert_room: 0 is out of range: at least 0.01"},
      {{"stage.0.parallel.tensor=2", "stage.0.parallel.sequence=false"},
       "parallel.sequence: all tensor ranks would compute the experts"},
  };
  for (const auto& [sets, message] : kMistakes) {
    const absl::StatusOr<Recipe> recipe = Parse(kRecipe, sets);
    ASSERT_FALSE(recipe.ok()) << message;
    EXPECT_EQ(recipe.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(recipe.status().message()), HasSubstr(message));
  }
}

}  // namespace
}  // namespace delink::moe_config_test
