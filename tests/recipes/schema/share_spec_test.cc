// Share specs as people write them, and which layers they link.
#include "framework/sharing/share_spec.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace delink::share_spec_test {
namespace {

using Kind = SharePolicy::Kind;

std::vector<int64_t> Sets(const SharePolicy& policy, int64_t layers) {
  std::vector<int64_t> sets;
  for (int64_t i = 0; i < layers; ++i) {
    sets.push_back(ShareSetOf(policy, layers, i));
  }
  return sets;
}

TEST(ShareSpec, ParsesAndPrints) {
  for (const char* text : {"all", "none", "groups:4", "cycle:12",
                           "attention=all,mlp=groups:4", "mlp=none"}) {
    const auto spec = ParseShareSpec(text);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(ToString(*spec), text);
    EXPECT_EQ(ParseShareSpec(ToString(*spec)).value(), *spec);
  }
  EXPECT_EQ(ToString(ParseShareSpec(" attention = all , mlp=cycle:2").value()),
            "attention=all,mlp=cycle:2");
  EXPECT_EQ(ToString(ShareSpec{}), "none");
}

TEST(ShareSpec, PartsThatAreNotNamedShareNothing) {
  const ShareSpec spec = ParseShareSpec("attention=all,mlp=groups:4").value();
  EXPECT_EQ(spec.For("attention").kind, Kind::kAll);
  EXPECT_EQ(spec.For("mlp"), (SharePolicy{Kind::kGroups, 4}));
  EXPECT_EQ(spec.For("norm").kind, Kind::kNone);
  EXPECT_EQ(ParseShareSpec("all")->For("norm").kind, Kind::kAll);
}

TEST(ShareSpec, RefusesTheRest) {
  for (const auto& [text, error] :
       std::vector<std::pair<std::string, std::string>>{
           {"", "'' is no way to share: use all, groups:N, cycle:N or none"},
           {"groups",
            "'groups' is no way to share: use all, groups:N, cycle:N or none"},
           {"groups:",
            "'groups:' is no way to share: after the colon comes a number of "
            "sets, 1 or more"},
           {"groups:0",
            "'groups:0' is no way to share: after the colon comes a number of "
            "sets, 1 or more"},
           {"cycle:99999999999999999999",
            "'cycle:99999999999999999999' is no way to share: after the colon "
            "comes a number of sets, 1 or more"},
           {"groups:2x",
            "'groups:2x' is no way to share: after the colon comes a number of "
            "sets, 1 or more"},
           {"mlp=all,",
            "'' in 'mlp=all,' is not part=policy, as in "
            "attention=all,mlp=groups:4"},
           {"=all",
            "'=all' in '=all' is not part=policy, as in "
            "attention=all,mlp=groups:4"},
           {"mlp=all,mlp=none", "'mlp=all,mlp=none' names mlp twice"},
           {"mlp=some",
            "'some' is no way to share: use all, groups:N, cycle:N or none"}}) {
    EXPECT_EQ(ParseShareSpec(text).status().message(), error);
  }
}

TEST(SharePolicy, LinksLayers) {
  EXPECT_EQ(Sets({Kind::kAll, 0}, 4), (std::vector<int64_t>{0, 0, 0, 0}));
  EXPECT_EQ(Sets({Kind::kNone, 0}, 4), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(Sets({Kind::kGroups, 2}, 4), (std::vector<int64_t>{0, 0, 1, 1}));
  EXPECT_EQ(Sets({Kind::kCycle, 2}, 5), (std::vector<int64_t>{0, 1, 0, 1, 0}));
  EXPECT_EQ(ShareSets({Kind::kAll, 0}, 6), 1);
  EXPECT_EQ(ShareSets({Kind::kNone, 0}, 6), 6);
  EXPECT_EQ(ShareSets({Kind::kGroups, 3}, 6), 3);
  EXPECT_EQ(ShareSets({Kind::kCycle, 4}, 6), 4);
}

TEST(SharePolicy, MustFitTheLayers) {
  EXPECT_TRUE(CheckSharePolicy({Kind::kAll, 0}, 1).ok());
  EXPECT_TRUE(CheckSharePolicy({Kind::kGroups, 3}, 6).ok());
  EXPECT_TRUE(CheckSharePolicy({Kind::kCycle, 4}, 6).ok());
  EXPECT_EQ(CheckSharePolicy({Kind::kGroups, 4}, 6).message(),
            "groups:4 does not divide 6 layers");
  EXPECT_EQ(CheckSharePolicy({Kind::kCycle, 7}, 6).message(),
            "cycle:7 does not fit 6 layers: use 1 to 6 sets");
}

TEST(SharePolicy, RefinesWhereLinksAreOnlyCut) {
  const SharePolicy all{Kind::kAll, 0}, none{Kind::kNone, 0},
      halves{Kind::kGroups, 2}, quarters{Kind::kGroups, 4},
      even{Kind::kCycle, 2}, fours{Kind::kCycle, 4};
  EXPECT_TRUE(Refines(none, all, 8));
  EXPECT_TRUE(Refines(halves, all, 8));
  EXPECT_TRUE(Refines(quarters, halves, 8));
  EXPECT_TRUE(Refines(fours, even, 8));
  EXPECT_TRUE(Refines(halves, halves, 8));
  EXPECT_FALSE(Refines(all, none, 8));
  EXPECT_FALSE(Refines(halves, quarters, 8));
  EXPECT_FALSE(Refines(even, halves, 8));
}

}  // namespace
}  // namespace delink::share_spec_test
