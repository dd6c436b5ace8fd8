// Programs count slabs as the layout does, the store of a rank as it has them:
// over random layouts of data and pipeline, the two meet.
#include "framework/step/layout_shape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "framework/base/at.h"
#include "framework/module/param_store.h"
#include "framework/step/memory.h"
#include "framework/step/well_formed.h"
#include "tests/framework/module/random_layouts.h"

namespace delink {
namespace {

using testing::Dice;
using testing::Model;

Layout DrawLayout(const Model& model, Dice& dice) {
  while (true) {
    Layout layout = testing::AnyLayout(model, dice, 24, false);
    if (layout.mesh().context == 1) return layout;
  }
}

// Whether all of the pipeline has layers, which a random layout may not see to.
bool IsFilled(const Layout& layout) {
  const std::vector<int>& stages = layout.options().stages;
  for (int stage = 0; stage < layout.mesh().pipeline; ++stage) {
    if (!std::binary_search(stages.begin(), stages.end(), stage)) return false;
  }
  return true;
}

TEST(LayoutShapeTest, SaysWhoHasWhat) {
  Dice dice(1);
  int filled = 0, elsewhere = 0;
  for (int n = 0; n < 200; ++n) {
    Model model;
    testing::Declare(model, dice, 3);
    const Layout layout = DrawLayout(model, dice);
    const ProgramShape shape = ShapeOf(layout, 3);
    EXPECT_EQ(shape.ranks * shape.stages, layout.ranks());
    EXPECT_EQ(CheckShape(shape).ok(), IsFilled(layout));
    filled += IsFilled(layout) ? 1 : 0;
    for (int32_t s = 0; s < shape.slabs; ++s) {
      const std::vector<int>& group = *layout.local_slabs()[s].group;
      EXPECT_EQ(GroupSize(shape, s), static_cast<int32_t>(group.size()));
      for (int rank = 0; rank < layout.ranks(); ++rank) {
        const int32_t stage = layout.mesh().PlaceOf(rank)[Axis::kPipeline];
        const bool here = std::binary_search(group.begin(), group.end(), rank);
        EXPECT_EQ(IsHere(shape, stage, s), here);
        elsewhere += here ? 0 : 1;
      }
    }
  }
  EXPECT_GT(filled, 50);
  EXPECT_GT(elsewhere, 100);
}

// Addresses and flags of a layer's slabs go by their order in the store.
TEST(LayoutShapeTest, SlabsOfALayerAreInTheOrderOfTheStore) {
  Dice dice(2);
  const std::unique_ptr<Device> device = NewMetaDevice(DeviceKind::kCpu);
  int renumbered = 0;
  for (int n = 0; n < 100; ++n) {
    Model model;
    testing::Declare(model, dice, 3);
    const Layout layout = DrawLayout(model, dice);
    const ProgramShape shape = ShapeOf(layout, 1);
    const int rank = dice.Below(layout.ranks());
    const auto store = ParamStore::Create(*device, layout, rank, {});
    ASSERT_TRUE(store.ok());
    const int32_t stage = layout.mesh().PlaceOf(rank)[Axis::kPipeline];
    for (int32_t place = 0; place < shape.layers; ++place) {
      if (StageOf(shape, place) != stage) continue;
      std::vector<int> slabs;
      for (const int32_t s : At(shape.slabs_of_layer, place)) {
        slabs.push_back((*store)->SlabOf(s));
        renumbered += slabs.back() != s ? 1 : 0;
      }
      EXPECT_EQ(slabs, (*store)->slabs_of_layer(At(layout.visited(), place)));
    }
  }
  EXPECT_GT(renumbered, 50);
}

LayerPlan Saves(int64_t bytes) {
  LayerPlan plan;
  At(plan.visits, Phase::kRecord).slot_bytes = bytes;
  return plan;
}

TEST(LayoutShapeTest, BlocksThatSaveAlikeAreOfOneClass) {
  const auto classes = [](std::vector<int64_t> saved) {
    std::vector<LayerPlan> layers;
    for (const int64_t bytes : saved) layers.push_back(Saves(bytes));
    return SlotClasses(layers);
  };
  EXPECT_EQ(classes({64, 128, 128, 64}), (std::vector<int32_t>{0, 1, 1, 2}));
  EXPECT_EQ(classes({64, 128, 64, 128, 256, 64}),
            (std::vector<int32_t>{0, 1, 2, 1, 3, 4}));
  EXPECT_EQ(classes({64, 64}), (std::vector<int32_t>{0, 1}));
}

}  // namespace
}  // namespace delink
