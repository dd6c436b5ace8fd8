#include "framework/module/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/framework/module/toy_model.h"

namespace delink::layout_test {
namespace {

TEST(MeshTest, NumbersRanksFastestAxisFirst) {
  const Mesh mesh{.tensor = 2, .data = 3, .pipeline = 2};
  EXPECT_EQ(mesh.ranks(), 12);
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    EXPECT_EQ(mesh.RankAt(mesh.PlaceOf(rank)), rank);
  }
  EXPECT_EQ(mesh.PlaceOf(1)[Axis::kTensor], 1);
  EXPECT_EQ(mesh.PlaceOf(2)[Axis::kData], 1);
  EXPECT_EQ(mesh.PlaceOf(6)[Axis::kPipeline], 1);
  EXPECT_EQ(mesh.Group(3, {Axis::kTensor}), (std::vector<int>{2, 3}));
  EXPECT_EQ(mesh.Group(3, {Axis::kData}), (std::vector<int>{1, 3, 5}));
  EXPECT_EQ(mesh.Group(3, {Axis::kPipeline}), (std::vector<int>{3, 9}));
  EXPECT_EQ(mesh.Group(3, {Axis::kTensor, Axis::kPipeline}),
            (std::vector<int>{2, 3, 8, 9}));
  Mesh other = mesh;
  other.order = {Axis::kPipeline, Axis::kData, Axis::kContext, Axis::kTensor};
  EXPECT_EQ(other.PlaceOf(1)[Axis::kPipeline], 1);
}

TEST(MeshTest, ExpertsFoldOverTheRanksOfAStage) {
  const Mesh mesh{.tensor = 2, .data = 3, .pipeline = 2, .expert = 3};
  EXPECT_EQ(mesh.ranks(), 12);
  EXPECT_EQ(mesh.Group(4, {Axis::kExpert}), (std::vector<int>{3, 4, 5}));
  EXPECT_EQ(mesh.Group(6, {Axis::kExpert}), (std::vector<int>{6, 7, 8}));
  EXPECT_EQ(mesh.PlaceOf(10)[Axis::kExpert], 1);
  const AxisCut experts{Axis::kExpert, 3}, matrix{Axis::kTensor, 2};
  for (int rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(mesh.PieceAt(rank, experts), rank % 3);
    EXPECT_EQ(mesh.PieceAt(rank, matrix), rank % 2);
    EXPECT_EQ(mesh.PieceAt(rank, {}), 0);
  }
  // Three data places of two ranks: tokens of all meet.
  EXPECT_EQ(mesh.PlacesOfVisit(experts), 6);
  EXPECT_EQ(mesh.PlacesOfVisit(matrix), 2);
  EXPECT_EQ(mesh.weight_places(), 6);
  // The order of ranks in the world does not matter.
  Mesh other = mesh;
  other.order = {Axis::kData, Axis::kTensor, Axis::kContext, Axis::kPipeline};
  EXPECT_EQ(other.PlaceOf(1)[Axis::kExpert], 2);
  EXPECT_EQ(other.Group(0, {Axis::kExpert}), (std::vector<int>{0, 1, 3}));
}

TEST(RectTest, WithoutAHoleTheRestIsAllElse) {
  const Rect rect{.row = 2, .rows = 5, .column = 1, .columns = 7};
  const Rect hole{.row = 3, .rows = 9, .column = 4, .columns = 2};
  const Rect both = Overlap(rect, hole);
  EXPECT_EQ(both, (Rect{.row = 3, .rows = 4, .column = 4, .columns = 2}));
  int64_t left = 0;
  for (const Rect& piece : Without(rect, hole)) {
    EXPECT_EQ(Overlap(piece, hole).elements(), 0);
    EXPECT_EQ(Overlap(piece, rect), piece);
    left += piece.elements();
  }
  EXPECT_EQ(left, rect.elements() - both.elements());
  EXPECT_EQ(Without(rect, {.row = 90, .rows = 1, .columns = 3}),
            std::vector<Rect>{rect});
  EXPECT_TRUE(Without(rect, {.rows = 90, .columns = 90}).empty());
}

TEST(RectTest, ARangeIsAtMostThree) {
  const Rect rect{.row = 1, .rows = 4, .column = 2, .columns = 5};
  const std::vector<Rect> expected = {
      {.row = 1, .rows = 1, .column = 5, .columns = 2},
      {.row = 2, .rows = 2, .column = 2, .columns = 5},
      {.row = 4, .rows = 1, .column = 2, .columns = 1}};
  EXPECT_EQ(Cut(rect, {3, 16}), expected);
  EXPECT_EQ(Cut(rect, {0, 20}), std::vector<Rect>{rect});
  EXPECT_TRUE(Cut(rect, {7, 7}).empty());
}

class LayoutTest : public ::testing::Test {
 protected:
  LayoutTest() {
    const Scope root(registry_);
    const Scope embed = root.Layer(0, "embed").Part("embedding");
    embed.Param("weight", {.shape = {6, 4}, .split = Split::kOut});
    for (int i = 0; i < 2; ++i) {
      const Scope block = root.Layer(i + 1, "blocks/" + std::to_string(i));
      const Scope part = block.Part("attention");
      part.Param("norm", {.shape = {4}});
      part.Param("qkv",
                 {.shape = {8, 4}, .split = Split::kOut, .stacked = {4, 2, 2}});
      part.Param("out", {.shape = {4, 4}, .split = Split::kIn});
    }
    (root.Layer(3, "") / "head").Link("embed/weight");
  }
  ParamRegistry registry_;
};

// What the ranks of a data axis have is what one process has.
TEST_F(LayoutTest, DataRanksHaveWholeSlabs) {
  const Layout layout =
      Layout::Create(registry_, 2, {}, {.mesh = {.data = 3}, .zero = 1});
  ASSERT_EQ(layout.local_slabs().size(), layout.slabs().size());
  for (size_t s = 0; s < layout.slabs().size(); ++s) {
    const LocalSlab& local = layout.local_slabs()[s];
    EXPECT_EQ(local.slab.name, layout.slabs()[s].name);
    EXPECT_EQ(local.slab.elements, layout.slabs()[s].elements);
    EXPECT_EQ(local.slab.block, layout.slabs()[s].block);
    EXPECT_EQ(*local.group, (std::vector<int>{0, 1, 2}));
    EXPECT_EQ(layout.LocalSlabOf(static_cast<int>(s), 2), static_cast<int>(s));
  }
  EXPECT_EQ(layout.LayersOf(1), (std::vector<int>{0, 1, 2, 3}));
}

TEST_F(LayoutTest, WhatIsCutAndWhatIsNotAreApart) {
  const Layout layout = Layout::Create(
      registry_, 2, {}, {.mesh = {.tensor = 2, .data = 2}, .sequence = true});
  // Of the embedding two, of each block one for the norm and two.
  ASSERT_EQ(layout.local_slabs().size(), 8u);
  const LocalSlab& norm = layout.local_slabs()[2];
  EXPECT_EQ(norm.slab.name, "blocks/0/attention");
  EXPECT_EQ(*norm.group, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_TRUE(layout.IdenticalOverTensor(2).empty());
  const LocalSlab& second = layout.local_slabs()[4];
  EXPECT_EQ(second.slab.name, "blocks/0/attention.cut");
  EXPECT_EQ(*second.group, (std::vector<int>{1, 3}));
  // Rows of queries, keys and values each; columns of the output.
  const std::vector<Rect> qkv = {{2, 2, 0, 4}, {5, 1, 0, 4}, {7, 1, 0, 4}};
  EXPECT_EQ(second.rects[0], qkv);
  EXPECT_EQ(second.rects[1], (std::vector<Rect>{{0, 4, 2, 2}}));
  EXPECT_EQ(second.slab.params[0].elements, 16);
  EXPECT_EQ(second.slab.params[1].offset, 64);
}

// Pieces are padded to whole blocks, of which they have few.
TEST(BlockSize, FitsThePieces) {
  for (const int64_t elements :
       {int64_t{0}, int64_t{257}, int64_t{408'944'640}, int64_t{1} << 31}) {
    for (const int pieces : {1, 2, 3, 32, 512, 1024}) {
      SCOPED_TRACE(absl::StrCat(elements, " of ", pieces));
      const int64_t block = BlockSize(elements, pieces);
      EXPECT_EQ(block % 256, 0);
      const int64_t blocks = (elements + block - 1) / block;
      EXPECT_LE(blocks * pieces, 1024);
      if (pieces == 1) continue;  // shards of any number of ranks
      EXPECT_LE(blocks * block - elements, 1024 / pieces * 256);
    }
  }
}

// A tied head and a slab that blocks share are on every stage that uses them.
TEST_F(LayoutTest, StagesHaveWhatTheirLayersUse) {
  SharingMap sharing;
  sharing.leaders["attention"] = {0, 0};
  const Layout layout = Layout::Create(
      registry_, 2, sharing,
      {.mesh = {.data = 2, .pipeline = 3}, .chunks = {0, 0, 1, 2}});
  EXPECT_EQ(layout.LayersOf(0), (std::vector<int>{0, 1}));
  EXPECT_EQ(layout.LayersOf(5), (std::vector<int>{3}));
  ASSERT_EQ(layout.local_slabs().size(), 2u);
  EXPECT_EQ(*layout.local_slabs()[0].group, (std::vector<int>{0, 1, 4, 5}));
  EXPECT_EQ(*layout.local_slabs()[1].group, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(layout.LocalSlabsOf(3), (std::vector<int>{1}));
  EXPECT_EQ(layout.OwnedBy(1, 5).size(), 0);
}

// Each stage has every second chunk.
TEST_F(LayoutTest, ChunksGoRoundTheStages) {
  const Layout layout = Layout::Create(
      registry_, 2, {},
      {.mesh = {.data = 2, .pipeline = 2}, .chunks = {0, 1, 2, 3}});
  EXPECT_EQ(layout.LayersOf(1), (std::vector<int>{0, 2}));
  EXPECT_EQ(layout.LayersOf(2), (std::vector<int>{1, 3}));
}

// Also what one rank owns and updates is reduced in even shards.
TEST_F(LayoutTest, ReductionsLeaveEvenShards) {
  for (const WholeTensors whole : {WholeTensors::kNone, WholeTensors::kAll}) {
    const Layout layout = Layout::Create(
        registry_, 2, {},
        {.mesh = {.tensor = 2, .data = 2}, .zero = 1, .whole_tensors = whole});
    for (int s = 0; s < static_cast<int>(layout.local_slabs().size()); ++s) {
      const LocalSlab& local = At(layout.local_slabs(), s);
      const int ranks = static_cast<int>(local.group->size());
      for (int rank = 0; rank < layout.ranks(); ++rank) {
        const auto at =
            std::find(local.group->begin(), local.group->end(), rank);
        const bool here = at != local.group->end();
        const int place = static_cast<int>(at - local.group->begin());
        EXPECT_EQ(layout.ReducedOn(s, rank),
                  here ? ShardRange(local.slab, place, ranks) : Range{});
        if (whole == WholeTensors::kNone) {
          EXPECT_EQ(layout.OwnedBy(s, rank), layout.ReducedOn(s, rank));
        }
      }
    }
  }
}

TEST_F(LayoutTest, LayersAreSpreadEvenly) {
  const Layout layout =
      Layout::Create(registry_, 2, {}, {.mesh = {.pipeline = 3}});
  EXPECT_EQ(layout.options().chunks, (std::vector<int>{0, 1, 2, 2}));
}

}  // namespace
}  // namespace delink::layout_test
