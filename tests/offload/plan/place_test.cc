#include "offload/plan/place.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/sharing/resolve.h"
#include "framework/sharing/share_spec.h"
#include "recipes/models/gpt.h"

namespace delink::place_test {
namespace {

constexpr Tier kDevice = Tier::kDevice, kHost = Tier::kHost;
constexpr Home kAuto = Home::kAuto, kHere = Home::kDevice, kThere = Home::kHost;

class Place : public ::testing::Test {
 protected:
  Place() {
    GptConfig c;
    c.layers = 4;
    c.dim = 8;
    c.heads = c.kv_heads = 2;
    c.ffn = 32;
    c.vocab = 11;
    c.max_seq = 5;
    model_ = BuildGpt(Scope(registry_, DType::kF32), c);
    layout_ = std::make_unique<Layout>(
        Layout::Create(registry_, model_->blocks(),
                       *ResolveSharing(*ParseShareSpec("none"), registry_,
                                       model_->blocks(), {}),
                       {}));
  }
  std::vector<SlabTiers> Tiers(const OffloadRules& rules,
                               const AutoPlace& found = {}) const {
    return PlaceSlabs(*layout_, rules, found);
  }
  // Of the slab that has a parameter.
  SlabTiers TiersOf(const OffloadRules& rules, const std::string& name) const {
    const std::vector<SlabTiers> all = Tiers(rules);
    for (size_t s = 0; s < all.size(); ++s) {
      for (const SlabParam& param : layout_->slabs()[s].params) {
        if (registry_.decl(param.decl).name == name) return all[s];
      }
    }
    ADD_FAILURE() << name;
    return {};
  }
  bool IsOfBlock(size_t slab) const {
    const int leader = layout_->slabs()[slab].leader;
    return leader > 0 && leader <= layout_->blocks();
  }

  ParamRegistry registry_;
  std::unique_ptr<Sequential> model_;
  std::unique_ptr<Layout> layout_;
};

TEST_F(Place, IsTheDeviceWhereNothingIsSaid) {
  for (const SlabTiers& tiers : Tiers({})) EXPECT_EQ(tiers, SlabTiers());
}

// Shares of the blocks' elements, as near as whole slabs come to it, spread
// over the blocks.
TEST_F(Place, AShareStays) {
  int64_t all = 0, largest = 0;
  for (size_t s = 0; s < layout_->slabs().size(); ++s) {
    if (!IsOfBlock(s)) continue;
    all += layout_->slabs()[s].elements;
    largest = std::max(largest, layout_->slabs()[s].elements);
  }
  for (const double resident : {0.0, 0.25, 0.5, 0.75, 1.0}) {
    const std::vector<SlabTiers> tiers = Tiers({.resident = resident});
    int64_t stays = 0, stays_before = 0;
    for (size_t s = 0; s < tiers.size(); ++s) {
      const SlabTiers host{kHost, kHost, kHost};
      if (!IsOfBlock(s)) {
        EXPECT_EQ(tiers[s], SlabTiers());
        continue;
      }
      EXPECT_TRUE(tiers[s] == host || tiers[s] == SlabTiers());
      if (tiers[s] == host) continue;
      stays += layout_->slabs()[s].elements;
      if (layout_->slabs()[s].leader <= 2) {
        stays_before += layout_->slabs()[s].elements;
      }
    }
    const double wanted = resident * static_cast<double>(all);
    EXPECT_NEAR(static_cast<double>(stays), wanted,
                static_cast<double>(largest) / 2 + 1);
    EXPECT_NEAR(static_cast<double>(stays_before), wanted / 2,
                static_cast<double>(largest) / 2 + 1);
  }
}

// What keys say counts for those that do not stay.
TEST_F(Place, KeysAreOfTheOthers) {
  const OffloadRules rules{.all = {.weights = kHere}, .resident = 0};
  const SlabTiers tiers = TiersOf(rules, "blocks/1/attn/qkv/weight");
  EXPECT_EQ(tiers, (SlabTiers{kDevice, kHost, kHost}));
  const SlabTiers embed =
      TiersOf({.all = {.state = kThere}}, "embed/token/weight");
  EXPECT_EQ(embed, (SlabTiers{kDevice, kDevice, kHost}));
}

TEST_F(Place, OfRowsTheFirstThatSaysSomethingCountsKeyByKey) {
  const OffloadRules rules{
      .all = {.gradients = kThere},
      .resident = 1,
      .rows = {{"blocks/1/*", {.state = kThere}},
               {"blocks/*", {.weights = kThere, .state = kHere}}}};
  // All that is not said stays, as a share of 1 does.
  EXPECT_EQ(TiersOf(rules, "blocks/1/attn/qkv/weight"),
            (SlabTiers{kHost, kDevice, kHost}));
  EXPECT_EQ(TiersOf(rules, "blocks/2/attn/qkv/weight"),
            (SlabTiers{kHost, kDevice, kDevice}));
  EXPECT_EQ(TiersOf(rules, "embed/token/weight"),
            (SlabTiers{kDevice, kHost, kDevice}));
}

TEST_F(Place, WhatTheHostUpdatesIsAtHomeThere) {
  SlabTiers all{kHost, kHost, kHost};
  all.update = kHost;
  all.weight_resident = all.gradient_resident = true;
  EXPECT_EQ(TiersOf({.all = {.update = kThere}}, "embed/token/weight"), all);
  all.weight_resident = false;
  EXPECT_EQ(TiersOf({.all = {.weights = kThere, .update = kThere}},
                    "embed/token/weight"),
            all);
  all.gradient_resident = false;
  EXPECT_EQ(TiersOf({.all = {.update = kThere}, .resident = 0},
                    "blocks/0/attn/qkv/weight"),
            all);
}

// Shares of each set by itself, spread over the blocks; what keys say stays.
TEST_F(Place, WhatIsLeftOpenIsAsItWasFound) {
  const OffloadRules rules{.device = 1};
  for (const SlabTiers& tiers : Tiers(rules)) EXPECT_EQ(tiers, SlabTiers());
  const std::vector<SlabTiers> some =
      Tiers(rules, {.state = 1, .gradients = 0.5, .weights = 0.25});
  int64_t all = 0, gradients = 0, weights = 0, first_gradients = 0;
  for (size_t s = 0; s < some.size(); ++s) {
    const Slab& slab = layout_->slabs()[s];
    if (!IsOfBlock(s)) {
      EXPECT_EQ(some[s], SlabTiers());
      continue;
    }
    EXPECT_EQ(some[s].state, kHost);
    EXPECT_EQ(some[s].update, kDevice);
    all += slab.elements;
    if (some[s].weight == kHost) weights += slab.elements;
    if (some[s].gradient != kHost) continue;
    gradients += slab.elements;
    if (slab.leader <= 2) first_gradients += slab.elements;
  }
  const auto block = static_cast<double>(all) / 4;
  EXPECT_NEAR(static_cast<double>(gradients), 2 * block, block / 2);
  EXPECT_NEAR(static_cast<double>(first_gradients), block, block / 2);
  EXPECT_NEAR(static_cast<double>(weights), block, block / 2);
  EXPECT_EQ(BlockSlabs(*layout_), 12);
}

TEST_F(Place, KeysAreNotLeftOpen) {
  const AutoPlace all{.state = 1, .gradients = 1, .weights = 1, .ends = 1};
  const OffloadRules rules{.device = 1,
                           .all = {.weights = kHere},
                           .rows = {{"blocks/1/*", {.state = kHere}},
                                    {"blocks/2/*", {.weights = kAuto}}}};
  const auto tiers = [&](const std::string& name) {
    for (size_t s = 0; s < layout_->slabs().size(); ++s) {
      const Slab& slab = layout_->slabs()[s];
      if (registry_.decl(slab.params.front().decl).name.starts_with(name)) {
        return Tiers(rules, all)[s];
      }
    }
    return SlabTiers();
  };
  EXPECT_EQ(tiers("blocks/0/attn"), (SlabTiers{kDevice, kHost, kHost}));
  EXPECT_EQ(tiers("blocks/1/attn"), (SlabTiers{kDevice, kHost, kDevice}));
  EXPECT_EQ(tiers("blocks/2/attn"), (SlabTiers{kHost, kHost, kHost}));
  EXPECT_EQ(tiers("embed"), (SlabTiers{kDevice, kDevice, kHost}));
}

// An open update is the host's only of what has its state there.
TEST_F(Place, AnOpenUpdateIsWhereTheStateIs) {
  const AutoPlace found{.state = 1, .host_updates = 1};
  for (const OffloadRules& rules :
       {OffloadRules{.device = 1},
        OffloadRules{.all = {.update = kAuto}, .resident = 0}}) {
    const std::vector<SlabTiers> tiers = Tiers(rules, found);
    for (size_t s = 0; s < tiers.size(); ++s) {
      EXPECT_EQ(tiers[s].update, IsOfBlock(s) ? kHost : kDevice);
      EXPECT_EQ(tiers[s].weight_resident,
                IsOfBlock(s) && rules.device.has_value());
    }
  }
  for (const SlabTiers& tiers :
       Tiers({.device = 1, .all = {.update = kHere}}, found)) {
    EXPECT_EQ(tiers.update, kDevice);
  }
}

// Of blocks alone, by whatever slab of theirs.
TEST_F(Place, LayersWhoseActivationsGoToTheHost) {
  const auto layers = [&](const OffloadRules& rules) {
    std::string places;
    for (const bool stored : PlaceActivations(*layout_, rules).stored) {
      places += stored ? '1' : '0';
    }
    return places;
  };
  EXPECT_EQ(layers({}), "000000");
  EXPECT_EQ(layers({.all = {.weights = kThere}, .resident = 0}), "000000");
  EXPECT_EQ(layers({.all = {.activations = kThere}}), "011110");
  EXPECT_EQ(layers({.all = {.activations = kThere}, .resident = 1}), "000000");
  EXPECT_EQ(layers({.rows = {{"blocks/1/mlp/*", {.activations = kThere}},
                             {"embed/*", {.activations = kThere}}}}),
            "001000");
  const OffloadRules open{.device = 1,
                          .rows = {{"blocks/3/*", {.activations = kThere}}}};
  EXPECT_EQ(layers(open), "000010");
  EXPECT_EQ(
      PlaceActivations(*layout_, {.device = 1}, {.activations = 0.5}).stored,
      std::vector<bool>({false, false, true, false, true, false}));
  EXPECT_EQ(layers({.all = {.activations = kThere},
                    .rows = {{"blocks/2/*", {.activations = kHere}}}}),
            "011010");
}

// Of those that are not kept; what keys say goes to the host does so.
TEST_F(Place, BlocksThatAreMadeAgain) {
  const auto places = [&](const OffloadRules& rules, const AutoPlace& found) {
    const BlockActivations at = PlaceActivations(*layout_, rules, found);
    std::string text;
    for (size_t place = 0; place < at.stored.size(); ++place) {
      EXPECT_FALSE(at.stored[place] && at.recomputed[place]);
      text += at.stored[place] ? 's' : at.recomputed[place] ? 'r' : '-';
    }
    return text;
  };
  const OffloadRules open{.device = 1};
  EXPECT_EQ(places(open, {.activations = 1, .recompute = 1}), "-rrrr-");
  EXPECT_EQ(places(open, {.activations = 1, .recompute = 0.5}), "-rsrs-");
  EXPECT_EQ(places(open, {.activations = 0.5, .recompute = 1}), "--r-r-");
  EXPECT_EQ(places(open, {.recompute = 1}), "------");
  EXPECT_EQ(places({.device = 1,
                    .rows = {{"blocks/1/*", {.activations = kThere}},
                             {"blocks/2/*", {.activations = kHere}}}},
                   {.activations = 1, .recompute = 1}),
            "-rs-r-");
}

// The last ones of a forward, by their elements.
TEST_F(Place, TheHostUpdatesWhatIsNeededLast) {
  const OffloadRules rules{.device = 1};
  int64_t before = 0;
  for (const double share : {0.0, 0.25, 0.5, 0.75, 1.0}) {
    const std::vector<SlabTiers> tiers =
        Tiers(rules, {.state = 1, .host_updates = share});
    int64_t all = 0, host = 0;
    bool last = false;
    for (size_t s = 0; s < tiers.size(); ++s) {
      if (!IsOfBlock(s)) continue;
      all += layout_->slabs()[s].elements;
      const bool here = tiers[s].update == kHost;
      EXPECT_TRUE(here || !last);
      last = here;
      if (here) host += layout_->slabs()[s].elements;
      EXPECT_EQ(tiers[s].state, kHost);
    }
    EXPECT_NEAR(static_cast<double>(host), share * static_cast<double>(all),
                static_cast<double>(all) / 8);
    EXPECT_GE(host, before);
    before = host;
  }
}

TEST_F(Place, ARowThatMatchesNothingIsFound) {
  EXPECT_EQ(RowWithoutMatch(registry_, {}), std::nullopt);
  EXPECT_EQ(RowWithoutMatch(registry_, {.rows = {{"blocks/3/*", {}}}}),
            std::nullopt);
  EXPECT_EQ(RowWithoutMatch(
                registry_,
                {.rows = {{"*/qkv/*", {}}, {"blocks/4/*", {}}, {"head", {}}}}),
            1u);
}

}  // namespace
}  // namespace delink::place_test
