// Programs count slabs as the layout does, the store of a rank as it has them:
// over random layouts, the two meet.
#include "framework/step/plan/layout_shape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/at.h"
#include "framework/module/param_store.h"
#include "framework/optim/muon.h"
#include "framework/step/engine/context_cut.h"
#include "framework/step/plan/assemble.h"
#include "framework/step/plan/memory.h"
#include "framework/step/program/shape_table.h"
#include "framework/step/proof/well_formed.h"
#include "parallel/pipeline/one_f_one_b.h"
#include "tests/framework/module/random_layouts.h"
#include "tests/framework/module/toy_model.h"

namespace delink::layout_shape_test {
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
        cut += CutOf(shape, s).pieces > 1 ? 1 : 0;
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
  // Those that recompute keep their inputs alone.
  EXPECT_EQ(
      SlotClasses({Saves(64), Saves(128), Saves(128), Saves(256), Saves(64)},
                  {false, false, true, true, false}),
      (std::vector<int32_t>{0, 1, 2, 2, 3}));
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

// Blocks of matrices, which Muon wants.
void DeclareMatrices(Model& model, Dice& dice) {
  model.blocks = dice.Between(1, 3);
  model.kv_heads = dice.Between(1, 2);
  const bool down = dice.Maybe();
  const Scope root(model.registry);
  root.Layer(0, "embed").Param("weight", {.shape = {7, 6}});
  for (int i = 0; i < model.blocks; ++i) {
    const Scope block = root.Layer(i + 1, "blocks/" + std::to_string(i));
    const int64_t q = testing::kHeads * testing::kHeadDim;
    const int64_t kv = model.kv_heads * testing::kHeadDim;
    const Scope attention = (block / "attn").Part("attention");
    attention.Param("qkv", {.shape = {q + 2 * kv, 6},
                            .split = Split::kOut,
                            .stacked = {q, kv, kv},
                            .unit = testing::kHeadDim});
    attention.Param("norm", {.shape = {6}});
    const Scope mlp = (block / "mlp").Part("mlp");
    mlp.Param("mix", {.shape = {6, 6}});
    if (down) {
      mlp.Param("down", {.shape = {6, 9}, .split = Split::kIn});
    }
  }
  root.Layer(model.blocks + 1, "").Param("norm", {.shape = {6}});
}

// The embedding's planes are on the device once, of those of blocks, one of
// which is at work, two slabs', or as many as come ahead.
TEST(LayoutShapeTest, HasNoMoreCopiesThanSlabs) {
  ParamRegistry registry;
  testing::DeclareToy(registry, 3, 8);
  const Layout layout = Layout::Create(registry, 3, {}, {});
  const SlabTiers host{Tier::kHost, Tier::kHost, Tier::kHost};
  const Layout there =
      layout.WithTiers(std::vector<SlabTiers>(layout.slabs().size(), host));
  const ProgramShape shape = ShapeOf(there, 2, 1, /*late=*/true),
                     ahead = ShapeOf(there, 2, 2, /*late=*/true),
                     in_turn = ShapeOf(there, 2, 2);
  for (int32_t s = 0; s < shape.slabs; ++s) {
    const Slab& slab = At(layout.slabs(), s);
    if (slab.leader > 3) continue;
    for (const PlaneSet planes : kAllPlaneSets) {
      EXPECT_EQ(At(shape.copies, CopyClassOf(shape, planes, s)),
                slab.leader > 0 ? 2 : 1)
          << slab.name;
      EXPECT_EQ(At(ahead.copies, CopyClassOf(ahead, planes, s)),
                slab.leader > 0 ? 3 : 1)
          << slab.name;
      EXPECT_EQ(CopyClassOf(in_turn, planes, s) < 0,
                planes == PlaneSet::kUpdated);
    }
  }
}

// What an update is listed with is what it exchanges on every rank that holds
// state of the slab, and on all of a tensor axis or on none.
TEST(LayoutShapeTest, ListsWhatUpdatesExchange) {
  Dice dice(2);
  const auto muon = NewMuon({}, ParamRules({.momentum = 0.9}), nullptr);
  int listed = 0, absent = 0;
  for (int n = 0; n < 100; ++n) {
    Model model;
    DeclareMatrices(model, dice);
    const Layout layout = testing::AnyLayout(model, dice, 24);
    const auto shape = UpdateExchangesOf(layout, *muon, DType::kF32);
    for (size_t s = 0; s < layout.program_slabs().size(); ++s) {
      for (int rank = 0; rank < layout.ranks(); ++rank) {
        const int local = layout.LocalSlabOf(static_cast<int>(s), rank);
        const std::vector<int>& group = *At(layout.local_slabs(), local).group;
        if (!std::ranges::binary_search(group, rank)) continue;
        const auto here = muon->Exchanges(layout, rank, local, DType::kF32);
        const size_t count = shape.empty() ? 0 : shape[s].size();
        ASSERT_TRUE(here.empty() || here.size() == count);
        for (size_t k = 0; k < here.size(); ++k) {
          EXPECT_EQ(layout.mesh().tensor * here[k].count * 4,
                    shape[s][k].bytes);
        }
        listed += here.empty() ? 0 : 1;
        absent += here.empty() && count > 0 ? 1 : 0;
        for (const int beside : layout.mesh().Group(rank, {Axis::kTensor})) {
          const int other = layout.LocalSlabOf(static_cast<int>(s), beside);
          EXPECT_EQ(muon->Exchanges(layout, beside, other, DType::kF32), here);
        }
      }
    }
  }
  EXPECT_GT(listed, 0);
  EXPECT_GT(absent, 0);
}

// Each place has a chunk near the beginning and one near the end, and all of
// them together each token once.
TEST(ContextCutTest, PlacesHaveAChunkFromEachEnd) {
  EXPECT_EQ(ContextPlaces(3, 1, 0), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(ContextPlaces(12, 3, 0), (std::vector<int32_t>{0, 1, 10, 11}));
  EXPECT_EQ(ContextPlaces(12, 3, 1), (std::vector<int32_t>{2, 3, 8, 9}));
  EXPECT_EQ(ContextPlaces(12, 3, 2), (std::vector<int32_t>{4, 5, 6, 7}));
  const std::vector<int32_t> rows = {10, 11, 12, 13, 20, 21, 22, 23};
  std::vector<int32_t> here = {1};
  CutRows(rows, 4, ContextPlaces(4, 2, 0), &here);
  EXPECT_EQ(here, (std::vector<int32_t>{10, 13, 20, 23}));
  CutRows(rows, 4, ContextPlaces(4, 2, 1), &here);
  EXPECT_EQ(here, (std::vector<int32_t>{11, 12, 21, 22}));
}

}  // namespace
}  // namespace delink::layout_shape_test
