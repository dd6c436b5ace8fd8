#include "framework/sharing/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/base/at.h"
#include "tests/framework/module/toy_model.h"

namespace delink::resolve_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ShareSpec Spec(const std::string& text) {
  const absl::StatusOr<ShareSpec> spec = ParseShareSpec(text);
  DELINK_CHECK(spec.ok()) << spec.status().ToString();
  return *spec;
}

class ResolveTest : public ::testing::Test {
 protected:
  ResolveTest() { testing::DeclareToy(registry_, kBlocks, 5); }
  static constexpr int kBlocks = 6;

  SharingMap Map(const std::string& text) const {
    const absl::StatusOr<SharingMap> map =
        ResolveSharing(Spec(text), registry_, kBlocks);
    DELINK_CHECK(map.ok()) << map.status().ToString();
    return *map;
  }
  std::string Error(const std::string& text) const {
    return std::string(
        ResolveSharing(Spec(text), registry_, kBlocks).status().message());
  }

  ParamRegistry registry_;
};

TEST_F(ResolveTest, FindsTheParts) {
  EXPECT_THAT(PartsOf(registry_, kBlocks),
              ElementsAre("norm", "attention", "mlp"));
}

TEST_F(ResolveTest, EachWayOfSharing) {
  const SharingMap all = Map("all");
  EXPECT_EQ(all.leaders.size(), 3u);
  EXPECT_THAT(all.leaders.at("norm"), ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_THAT(Map("groups:2").leaders.at("mlp"), ElementsAre(0, 0, 0, 3, 3, 3));
  EXPECT_THAT(Map("cycle:4").leaders.at("mlp"), ElementsAre(0, 1, 2, 3, 0, 1));
  EXPECT_EQ(Map("none"), SharingMap{});
  EXPECT_EQ(Map("groups:6"), SharingMap{}) << "sets of one share nothing";
  const SharingMap some = Map("attention=all,mlp=groups:3");
  EXPECT_EQ(some.leaders.count("norm"), 0u);
  EXPECT_THAT(some.leaders.at("attention"), ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_THAT(some.leaders.at("mlp"), ElementsAre(0, 0, 2, 2, 4, 4));
}

TEST_F(ResolveTest, SaysWhatDoesNotFit) {
  EXPECT_THAT(Error("experts=all"), AllOf(HasSubstr("no part 'experts'"),
                                          HasSubstr("norm, attention, mlp")));
  EXPECT_THAT(Error("groups:4"), HasSubstr("groups:4 does not divide 6"));
  EXPECT_THAT(Error("mlp=cycle:7"),
              AllOf(HasSubstr("share of mlp"), HasSubstr("1 to 6")));
}

TEST_F(ResolveTest, RefusesBlocksThatDiffer) {
  ParamRegistry registry;
  for (int i = 0; i < 2; ++i) {
    Scope(registry)
        .Layer(i + 1, "blocks/" + std::to_string(i))
        .Part("mlp")
        .Param("up", {.shape = {2 + i}});
  }
  const auto map = ResolveSharing(Spec("all"), registry, 2);
  EXPECT_THAT(std::string(map.status().message()),
              HasSubstr("blocks 0 and 1 declare different parameters in mlp"));
  EXPECT_TRUE(ResolveSharing(Spec("none"), registry, 2).ok());
}

// Blocks 1, 2 and 5 of six have attention.
TEST_F(ResolveTest, PassesOverBlocksWithoutThePart) {
  ParamRegistry registry;
  for (int i = 0; i < kBlocks; ++i) {
    const Scope block =
        Scope(registry).Layer(i + 1, "blocks/" + std::to_string(i));
    block.Part("mlp").Param("up", {.shape = {3}});
    if (i == 1 || i == 2 || i == 5) {
      block.Part("attention").Param("qkv", {.shape = {4}});
    }
  }
  const auto map = [&](const char* text) {
    return ResolveSharing(Spec(text), registry, kBlocks).value();
  };
  const SharingMap all = map("all");
  EXPECT_THAT(all.leaders.at("mlp"), ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_THAT(all.leaders.at("attention"), ElementsAre(0, 1, 1, 3, 4, 1));
  EXPECT_THAT(map("groups:2").leaders.at("attention"),
              ElementsAre(0, 1, 1, 3, 4, 5));
  EXPECT_THAT(map("cycle:2").leaders.at("attention"),
              ElementsAre(0, 1, 2, 3, 4, 1));
  EXPECT_THAT(Sharers(all, "attention", kBlocks),
              ElementsAre(1, 3, 3, 1, 1, 3));
  const auto origins =
      RelationOf(registry, kBlocks, all, map("attention=cycle:2"));
  ASSERT_TRUE(origins.ok()) << origins.status();
  const std::vector<Slab> slabs =
      LayOutSlabs(registry, kBlocks, map("attention=cycle:2"));
  for (size_t s = 0; s < slabs.size(); ++s) {
    const bool mlp = slabs[s].part == "mlp";
    EXPECT_EQ((*origins)[s].before, mlp ? 6 : 3) << slabs[s].name;
    EXPECT_EQ((*origins)[s].after,
              slabs[s].name == "blocks/1/attention" ? 2 : 1)
        << slabs[s].name;
  }
}

TEST_F(ResolveTest, PassesOverBlocksThatAreNotVisited) {
  const auto map = [&](const char* text) {
    return ResolveSharing(Spec(text), registry_, kBlocks, {1, 2, 5}).value();
  };
  const SharingMap all = map("all");
  EXPECT_THAT(all.visited, ElementsAre(1, 2, 5));
  EXPECT_THAT(all.leaders.at("mlp"), ElementsAre(-1, 1, 1, -1, -1, 1));
  EXPECT_THAT(map("groups:2").leaders.at("mlp"),
              ElementsAre(-1, 1, 1, -1, -1, 5));
  EXPECT_THAT(Sharers(all, "mlp", kBlocks), ElementsAre(0, 3, 3, 0, 0, 3));
  EXPECT_THAT(Sharers(map("none"), "mlp", kBlocks),
              ElementsAre(0, 1, 1, 0, 0, 1));
  const auto origins = RelationOf(registry_, kBlocks, all, map("groups:2"));
  ASSERT_TRUE(origins.ok()) << origins.status();
  const std::vector<Slab> slabs =
      LayOutSlabs(registry_, kBlocks, map("groups:2"));
  ASSERT_EQ(origins->size(), slabs.size());
  for (size_t s = 0; s < slabs.size(); ++s) {
    const bool block = slabs[s].name.starts_with("blocks/");
    const bool last = slabs[s].name.starts_with("blocks/5/");
    EXPECT_EQ((*origins)[s].before, block ? 3 : 1) << slabs[s].name;
    EXPECT_EQ((*origins)[s].after, !block || last ? 1 : 2) << slabs[s].name;
  }
  EXPECT_THAT(
      std::string(
          RelationOf(registry_, kBlocks, all, Map("all")).status().message()),
      HasSubstr("blocks 0,1,2,3,4,5 are visited after the switch, but "
                "before it blocks 1,2,5"));
}

TEST_F(ResolveTest, RelatesNewSlabsToOld) {
  const SharingMap from = Map("attention=all,mlp=groups:2");
  const SharingMap to = Map("attention=groups:3,mlp=groups:2");
  const std::vector<Slab> before = LayOutSlabs(registry_, kBlocks, from);
  const std::vector<Slab> after = LayOutSlabs(registry_, kBlocks, to);
  const auto origins = RelationOf(registry_, kBlocks, from, to);
  ASSERT_TRUE(origins.ok()) << origins.status();
  ASSERT_EQ(origins->size(), after.size());
  for (size_t s = 0; s < after.size(); ++s) {
    const SlabOrigin& origin = (*origins)[s];
    const Slab& old = At(before, origin.slab);
    EXPECT_EQ(old.part, after[s].part);
    for (const int layer : after[s].layers) {
      EXPECT_THAT(old.layers, ::testing::Contains(layer));
    }
    if (after[s].part == "attention") {
      EXPECT_EQ(origin.before, 6);
      EXPECT_EQ(origin.after, 2);
    } else {
      EXPECT_FALSE(origin.changed()) << after[s].name;
    }
  }
}

TEST_F(ResolveTest, OnlyCutsLinks) {
  const auto refused = [&](const char* from, const char* to) {
    return std::string(
        RelationOf(registry_, kBlocks, Map(from), Map(to)).status().message());
  };
  EXPECT_THAT(refused("none", "all"), HasSubstr("blocks 0 and 1 share norm"));
  EXPECT_THAT(refused("groups:2", "cycle:2"), HasSubstr("only cuts links"));
  EXPECT_THAT(refused("attention=all", "mlp=groups:3"),
              HasSubstr("share mlp after the switch"));
  EXPECT_EQ(refused("all", "cycle:2"), "");
  EXPECT_EQ(refused("cycle:2", "cycle:4"), "");
  EXPECT_EQ(refused("groups:2", "groups:2"), "");
  EXPECT_EQ(refused("groups:2", "none"), "");
}

}  // namespace
}  // namespace delink::resolve_test
