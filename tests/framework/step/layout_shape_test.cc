// Programs count slabs as the layout does, the store of a rank as it has them:
// over random layouts, the two meet.
#include "framework/step/layout_shape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "framework/base/at.h"
#include "framework/module/param_store.h"
#include "framework/step/memory.h"
#include "framework/step/plan/assemble.h"
#include "framework/step/shape_table.h"
#include "framework/step/well_formed.h"
#include "parallel/pipeline/one_f_one_b.h"
#include "tests/framework/module/random_layouts.h"

namespace delink {
namespace {

using testing::Dice;
using testing::Model;

Layout DrawLayout(const Model& model, Dice& dice) {
  return testing::AnyLayout(model, dice, 24, dice.Maybe());
}

// Whether no chunk is without layers, and each stage has as many chunks, which
// a random layout may not see to.
bool IsFilled(const Layout& layout) {
  const int stages = layout.mesh().pipeline;
  if (stages == 1) return true;
  const std::vector<int>& chunks = layout.options().chunks;
  const int count = chunks.back() + 1;
  return count % stages == 0 &&
         std::set<int>(chunks.begin(), chunks.end()).size() ==
             static_cast<size_t>(count);
}

TEST(LayoutShapeTest, SaysWhoHasWhat) {
  Dice dice(1);
  int filled = 0, elsewhere = 0, cut = 0;
  for (int n = 0; n < 200; ++n) {
    Model model;
    testing::Declare(model, dice, 3);
    const Layout layout = DrawLayout(model, dice);
    const ProgramShape shape = ShapeOf(layout, 3);
    const ShapeTable table(shape);
    EXPECT_EQ(shape.ranks * shape.stages, layout.ranks());
    EXPECT_EQ(CheckShape(shape).ok(), IsFilled(layout));
    filled += IsFilled(layout) ? 1 : 0;
    for (int32_t s = 0; s < shape.slabs; ++s) {
      for (int rank = 0; rank < layout.ranks(); ++rank) {
        const std::vector<int>& group =
            *At(layout.local_slabs(), layout.LocalSlabOf(s, rank)).group;
        EXPECT_EQ(table.GroupSize(s), static_cast<int32_t>(group.size()));
        const int32_t stage = layout.mesh().PlaceOf(rank)[Axis::kPipeline];
        const bool here = std::binary_search(group.begin(), group.end(), rank);
        EXPECT_EQ(table.IsHere(stage, s), here);
        elsewhere += here ? 0 : 1;
        cut += PiecesOf(shape, s) > 1 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(filled, 50);
  EXPECT_GT(elsewhere, 100);
  EXPECT_GT(cut, 100);
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
        slabs.push_back(SlabHere(**store, s));
        renumbered += slabs.back() != s ? 1 : 0;
      }
      EXPECT_EQ(slabs, (*store)->slabs_of_layer(At(layout.visited(), place)));
    }
  }
  EXPECT_GT(renumbered, 50);
}

LayerPlan Saves(int64_t bytes, int64_t workspace = 0) {
  LayerPlan plan{.output = {1, 1, 16}};
  At(plan.visits, Phase::kRecord).slot_bytes = bytes;
  At(plan.visits, Phase::kForward).workspace_bytes = workspace;
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

// Slots, scratch and workspace; the inputs that leave have slots of their own.
TEST(LayoutShapeTest, AStageHasRoomForItsOwnLayers) {
  constexpr int64_t kBoundary = 256;  // bytes: 16 of f32, aligned
  Dice dice(3);
  Model model;
  while (model.blocks != 2) {
    model = {};
    testing::Declare(model, dice, 3);
  }
  const Layout layout = Layout::Create(
      model.registry, 2, {}, {.mesh = {.pipeline = 2}, .chunks = {0, 0, 1, 1}});
  const std::vector<LayerPlan> layers = {Saves(64, 1024), Saves(128, 2048),
                                         Saves(256, 512), Saves(320, 4096)};
  const std::unique_ptr<Device> device = NewMetaDevice(DeviceKind::kCpu);
  ProgramShape shape = ShapeOf(layout, 3);
  shape.slot_class = SlotClasses(layers);
  const auto size = [&](int32_t stage) {
    Pass pass{.program =
                  PlannerOf(OneFOneB, false)(PassKind::kStep, shape, stage)};
    pass.analysis = AnalyzeProgram(pass.program);
    Passes passes;
    passes.emplace(PassKind::kStep, std::move(pass));
    const auto store = ParamStore::Create(*device, layout, stage, {});
    return SizeStep(**store, layers, {}, passes);
  };
  const StepMemory first = size(0), last = size(1);
  EXPECT_EQ(first.boundary_bytes, kBoundary);
  EXPECT_EQ(first.workspace, 2048);
  EXPECT_EQ(first.scratch_slot, 0);
  EXPECT_EQ(first.slot_bytes(), 2 * 64 + 2 * (kBoundary + 128) + 2 * kBoundary);
  EXPECT_EQ(last.workspace, 4096);
  EXPECT_EQ(last.scratch_slot, 320);
  // The input of the next micro-batch comes while this one is at work.
  EXPECT_EQ(last.slot_bytes(), 2 * (kBoundary + 256) + kBoundary);
}

}  // namespace
}  // namespace delink
