#include "framework/optim/param_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/framework/module/toy_model.h"

namespace delink::param_rules_test {
namespace {

using ::testing::HasSubstr;
using testing::MakeStore;
using testing::SlabNamed;

constexpr Hyper kAll = {
    .decay = 0.1, .beta1 = 0.9, .beta2 = 0.95, .momentum = 0.8};

class ParamRulesTest : public ::testing::Test {
 protected:
  ParamRulesTest() { testing::DeclareToy(registry_, 3, 5); }

  absl::StatusOr<ParamRules> Rules(const std::vector<HyperGroup>& groups) {
    return ParamRules::Create(registry_, kAll, groups, &wrong_);
  }
  Hyper Of(const ParamRules& rules, const std::string& name) {
    for (size_t i = 0; i < registry_.decls.size(); ++i) {
      if (registry_.decls[i].name == name) {
        return rules.HyperOf(registry_, static_cast<int>(i));
      }
    }
    ADD_FAILURE() << name;
    return {};
  }

  ParamRegistry registry_;
  size_t wrong_ = 99;
};

TEST_F(ParamRulesTest, WithoutGroupsOnlyDecayDiffers) {
  const ParamRules rules(kAll);
  EXPECT_EQ(Of(rules, "blocks/1/attn/qkv/weight"), kAll);
  EXPECT_EQ(Of(rules, "blocks/1/attn/qkv/bias").decay, 0);
  EXPECT_EQ(Of(rules, "blocks/1/attn/qkv/bias").beta2, 0.95);
}

TEST_F(ParamRulesTest, TheFirstGroupThatMatchesCounts) {
  const auto rules = Rules({{.match = "blocks/2/*", .lr_scale = 0.5},
                            {.match = "*/attn/*", .decay = 0.3, .beta2 = 0.99},
                            {.match = "*/mlp/up", .momentum = 0.0}});
  ASSERT_TRUE(rules.ok()) << rules.status().ToString();
  const Hyper second = Of(*rules, "blocks/2/attn/qkv/weight");
  EXPECT_EQ(second.lr_scale, 0.5);
  EXPECT_EQ(second.decay, 0.1);
  // A group's decay is also for what is declared without.
  const Hyper bias = Of(*rules, "blocks/1/attn/qkv/bias");
  EXPECT_EQ(bias.decay, 0.3);
  EXPECT_EQ(bias.beta2, 0.99);
  EXPECT_EQ(bias.beta1, 0.9);
  EXPECT_EQ(Of(*rules, "blocks/0/mlp/up").momentum, 0);
  EXPECT_EQ(Of(*rules, "embed/token/weight"), kAll);
}

TEST_F(ParamRulesTest, AGroupCanBeAPart) {
  const auto rules = Rules({{.part = "mlp", .lr_scale = 0.5}});
  ASSERT_TRUE(rules.ok()) << rules.status().ToString();
  EXPECT_EQ(Of(*rules, "blocks/0/mlp/up").lr_scale, 0.5);
  EXPECT_EQ(Of(*rules, "blocks/0/attn/qkv/weight").lr_scale, 1);
  EXPECT_THAT(std::string(Rules({{.part = "mlps"}}).status().message()),
              HasSubstr("no parameter is of the part 'mlps'"));
}

TEST_F(ParamRulesTest, APatternThatMatchesNothingNamesWhatIsNear) {
  const auto rules = Rules(
      {{.match = "*", .lr_scale = 1.0}, {.match = "blocks/1/attn/qvk/weight"}});
  ASSERT_FALSE(rules.ok());
  EXPECT_EQ(rules.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(wrong_, 1);
  EXPECT_THAT(std::string(rules.status().message()),
              HasSubstr("'blocks/1/attn/qvk/weight' matches no parameter; "
                        "similar names are blocks/1/attn/qkv/weight"));
}

TEST_F(ParamRulesTest, APatternBehindAnotherOrOfATiedHeadIsOfNoUse) {
  EXPECT_THAT(
      std::string(
          Rules({{.match = "*"}, {.match = "*/mlp/up"}}).status().message()),
      HasSubstr("matches only parameters that an earlier group matches"));
  EXPECT_EQ(wrong_, 1);
  EXPECT_THAT(std::string(Rules({{.match = "head/*"}}).status().message()),
              HasSubstr("tied to embed/token/weight"));
  EXPECT_EQ(wrong_, 0);
}

TEST_F(ParamRulesTest, WhatIsTiedIsNamedOnlyWhereNothingElseMatches) {
  (Scope(registry_).Layer(4, "") / "head").Param("weight2", {.shape = {5}});
  EXPECT_THAT(
      std::string(
          Rules({{.match = "*"}, {.match = "head/*"}}).status().message()),
      HasSubstr("matches only parameters that an earlier group matches "
                "(such as head/weight2)"));
}

TEST_F(ParamRulesTest, LayersThatShareMustAgree) {
  const auto rules = Rules({{.match = "blocks/2/attn/*", .lr_scale = 0.5}});
  ASSERT_TRUE(rules.ok());
  const SharingMap mlp = testing::ShareAll(3, {"mlp", "norm"});
  EXPECT_TRUE(rules->CheckSharing(registry_, 3, mlp).ok());
  const absl::Status status =
      rules->CheckSharing(registry_, 3, testing::ShareAll(3, {"attention"}));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("blocks/0/attn/qkv/weight and blocks/2/attn/qkv/weight "
                        "share weights, but groups give them lr_scale 1 and "
                        "0.5"));
}

TEST_F(ParamRulesTest, RunsAreNeighboursThatAreAlike) {
  const auto device = NewCpuDevice();
  const auto store = MakeStore(*device, registry_, 3, {});
  const int slab = SlabNamed(*store, "blocks/1/attention");
  const auto& params = store->slab(slab).params;
  // qkv/weight, qkv/bias (not decayed), out/weight.
  ASSERT_EQ(params.size(), 3);
  const std::vector<UpdateRun> apart = RunsOf(*store, slab, ParamRules(kAll));
  ASSERT_EQ(apart.size(), 3);
  EXPECT_EQ(apart[1].begin, params[1].offset);
  EXPECT_EQ(apart[1].end, params[1].offset + params[1].elements);
  const std::vector<UpdateRun> together =
      RunsOf(*store, slab, ParamRules(Hyper{.decay = 0}));
  ASSERT_EQ(together.size(), 1);
  EXPECT_EQ(together[0].begin, 0);
  EXPECT_EQ(together[0].end, params[2].offset + params[2].elements);
}

}  // namespace
}  // namespace delink::param_rules_test
