// Layouts of random models over random meshes, and the copies from one to
// another. Tensors are a few elements, so that every one can be looked at.
#include "framework/module/descriptor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "framework/module/state_layout.h"
#include "tests/framework/module/random_layouts.h"
#include "tests/framework/module/toy_model.h"

namespace delink::descriptor_test {
namespace {

using testing::AnyLayout;
using testing::Declare;
using testing::Dice;
using testing::ForEachElement;
using testing::LocalName;
using testing::Model;

// How often each value of a grid is in the extents, by its number.
std::vector<int> CountsOf(const Descriptor& extents, const Shape& grid) {
  const Rect whole = WholeOf(grid);
  std::vector<int> counts(static_cast<size_t>(whole.elements()), 0);
  for (const Extent& extent : extents) {
    ForEachElement(extent, [&](int64_t row, int64_t column, int64_t) {
      ++At(counts, row * whole.columns + column);
    });
  }
  return counts;
}

const LogicalTensor& TensorOf(const Layout& layout, const std::string& name) {
  const auto at = std::find_if(
      layout.tensors().begin(), layout.tensors().end(),
      [&](const LogicalTensor& tensor) { return tensor.name == name; });
  DELINK_CHECK(at != layout.tensors().end());
  return *at;
}

// (target, local slab, parameter, offset) -> a value, of what lies on a rank.
using Places = std::map<std::tuple<size_t, int, size_t, int64_t>, int64_t>;

void AddPlaces(const Extent& extent, size_t target, int64_t columns,
               std::map<int, Places>& places) {
  ForEachElement(extent, [&](int64_t row, int64_t column, int64_t offset) {
    const bool fresh =
        places[extent.rank]
            .emplace(std::tuple{target, extent.slab, extent.param, offset},
                     row * columns + column)
            .second;
    EXPECT_TRUE(fresh) << "two values in one place, or one twice";
  });
}

std::map<int, Places> PlacesOf(const std::vector<Descriptor>& targets,
                               const Shape& grid) {
  std::map<int, Places> places;
  for (size_t t = 0; t < targets.size(); ++t) {
    for (const Extent& extent : targets[t]) {
      AddPlaces(extent, t, WholeOf(grid).columns, places);
    }
  }
  return places;
}

// Of every value one owner, and it has it; an element's is who owns its place
// in the slab.
void CheckOwners(const Layout& layout, const LogicalTensor& tensor,
                 StateExtent extent) {
  const Shape grid = StateShape(tensor.shape, extent);
  const Descriptor owned = OwnersOf(layout, tensor, extent);
  const Descriptor held = DescriptorOf(layout, tensor, extent, false);
  for (const int count : CountsOf(owned, grid)) ASSERT_EQ(count, 1);
  const auto places = PlacesOf({held}, grid);
  for (const auto& [rank, elements] : PlacesOf({owned}, grid)) {
    const std::vector<int> here = layout.LocalSlabsOf(rank);
    for (const auto& [place, element] : elements) {
      ASSERT_EQ(places.at(rank).at(place), element);
      const auto& [target, slab, param, offset] = place;
      ASSERT_TRUE(std::count(here.begin(), here.end(), slab));
      if (extent != StateExtent::kElements) continue;
      const Range range = layout.OwnedBy(slab, rank);
      const int64_t at =
          At(layout.local_slabs(), slab).slab.params[param].offset + offset;
      ASSERT_TRUE(at >= range.begin && at < range.end);
    }
  }
}

// Ranks that gather a slab's weights have each element once, replicas the same
// ones, and every rank what it owns.
void CheckWeights(const Layout& layout, int slab) {
  const LocalSlab& local = At(layout.local_slabs(), slab);
  const PlacementRow& row = At(layout.placement().rows, slab);
  const auto ranks = static_cast<int>(local.group->size());
  for (const int rank : *local.group) {
    const Range held = layout.WeightsOn(slab, rank);
    const Range owned = layout.OwnedBy(slab, rank);
    ASSERT_TRUE(owned.size() == 0 ||
                (held.begin <= owned.begin && owned.end <= held.end));
    if (!row.weight.sharded) {
      ASSERT_EQ(held.size(), local.slab.elements);
      continue;
    }
    const std::vector<int> gather = layout.GatherGroup(slab, rank);
    const std::vector<int> replicas = layout.ReplicaGroup(slab, rank);
    ASSERT_EQ(std::ssize(gather) * std::ssize(replicas), ranks);
    ASSERT_EQ(std::ssize(replicas), local.replicas);
    int64_t end = 0;
    for (const int other : gather) {
      const Range part = layout.WeightsOn(slab, other);
      if (part.size() == 0) continue;
      ASSERT_EQ(part.begin, end);
      end = part.end;
    }
    ASSERT_EQ(end, local.slab.elements);
    for (const int other : replicas) {
      ASSERT_EQ(layout.WeightsOn(slab, other), held);
    }
  }
}

// What of `tensor` has a value; statistics are of matrices.
StateExtent AnyGrid(const ParamSpec& spec, Dice& dice) {
  if (spec.is_vector()) return StateExtent::kElements;
  return static_cast<StateExtent>(dice.Below(3));
}

// What of `wanted` is not there, each value once a rank.
int64_t LeastToCross(const std::map<int, Places>& was,
                     const std::map<int, Places>& wanted) {
  int64_t least = 0;
  for (const auto& [rank, places] : wanted) {
    std::set<int64_t> missing;
    for (const auto& [place, value] : places) missing.insert(value);
    if (const auto at = was.find(rank); at != was.end()) {
      for (const auto& [place, value] : at->second) missing.erase(value);
    }
    least += static_cast<int64_t>(missing.size());
  }
  return least;
}

// What each rank plans is its part of what all do.
void CheckParts(int ranks, const Descriptor& owners, const Descriptor& before,
                const std::vector<Descriptor>& after) {
  const std::vector<CopyStep> all = PlanCopy(owners, before, after);
  const bool crosses =
      std::any_of(all.begin(), all.end(),
                  [](const CopyStep& step) { return step.crosses(); });
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<CopyStep> part = all;
    for (CopyStep& step : part) {
      std::erase_if(step.to, [&](const CopyStep::Place& place) {
        return step.from.rank != rank && place.extent.rank != rank;
      });
    }
    std::erase_if(part, [](const CopyStep& step) { return step.to.empty(); });
    const CopyPlan plan = PlanCopyOn(rank, owners, before, after);
    ASSERT_EQ(plan.steps, part) << rank;
    ASSERT_EQ(plan.crosses, crosses) << rank;
    ASSERT_TRUE(plan.complete) << rank;
  }
}

// Carries numbered values by the plan: all arrive, each once, and nothing
// crosses the network that was there before, or twice to one rank.
void CheckCopy(const Layout& from, const LogicalTensor& source,
               const std::vector<Descriptor>& after, const Shape& grid,
               StateExtent extent, bool sharded) {
  const Descriptor before = DescriptorOf(from, source, extent, sharded);
  const auto was = PlacesOf({before}, grid);
  const auto wanted = PlacesOf(after, grid);
  std::map<int, Places> arrived;
  int64_t crossed = 0;
  for (const CopyStep& step :
       PlanCopy(OwnersOf(from, source, extent), before, after)) {
    ASSERT_FALSE(step.to.empty());
    ForEachElement(step.from, [&](int64_t row, int64_t column, int64_t offset) {
      ASSERT_EQ(was.at(step.from.rank)
                    .at({0, step.from.slab, step.from.param, offset}),
                row * WholeOf(grid).columns + column);
    });
    std::set<int> ranks;
    for (const auto& [place, target] : step.to) {
      ASSERT_EQ(place.rect, step.from.rect);
      ASSERT_TRUE(ranks.empty() || place.rank >= *ranks.rbegin());
      ranks.insert(place.rank);
      AddPlaces(place, target, WholeOf(grid).columns, arrived);
    }
    ranks.erase(step.from.rank);
    ASSERT_EQ(step.crosses(), !ranks.empty());
    crossed += static_cast<int64_t>(ranks.size()) * step.from.rect.elements();
  }
  ASSERT_EQ(arrived, wanted);
  ASSERT_EQ(crossed, LeastToCross(was, wanted));
  const int ranks =
      std::max(from.ranks(), wanted.empty() ? 0 : wanted.rbegin()->first + 1);
  CheckParts(ranks, OwnersOf(from, source, extent), before, after);
}

class RandomLayouts : public ::testing::TestWithParam<int> {};

// 10 parts of 1000 pairs: pseudo and real, tensor, pipeline, data and ZeRO
// shards, up to 64 ranks.
TEST_P(RandomLayouts, EveryElementArrivesOnce) {
  Dice dice(static_cast<uint64_t>(GetParam()));
  for (int trial = 0; trial < 1000; ++trial) {
    Model model;
    Declare(model, dice);
    const Layout from = AnyLayout(model, dice);
    const Layout to = AnyLayout(model, dice);
    SCOPED_TRACE(trial);
    const LogicalTensor& source =
        At(from.tensors(), dice.Below(static_cast<int>(from.tensors().size())));
    const StateExtent extent = AnyGrid(from.SpecOf(source), dice);
    ASSERT_NO_FATAL_FAILURE(CheckOwners(from, source, extent));
    const Range slabs = from.LocalSlabsOfLogical(source.slab);
    for (auto slab = static_cast<int>(slabs.begin); slab < slabs.end; ++slab) {
      ASSERT_NO_FATAL_FAILURE(CheckWeights(from, slab));
    }
    std::vector<Descriptor> after;
    const bool sharded = dice.Maybe();
    const std::string local = LocalName(source.name);
    for (const LogicalTensor& tensor : to.tensors()) {
      if (LocalName(tensor.name) != local || !tensor.link.empty()) continue;
      if (after.empty() || dice.Maybe()) {
        after.push_back(DescriptorOf(to, tensor, extent, sharded));
      }
    }
    ASSERT_NO_FATAL_FAILURE(CheckCopy(from, source, after,
                                      StateShape(source.shape, extent), extent,
                                      dice.Maybe()));
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomLayouts, ::testing::Range(0, 10));

TEST(DescriptorTest, ShardsCutTensors) {
  ParamRegistry registry;
  Scope(registry).Layer(0, "").Param("a", {.shape = {10, 60}});
  Scope(registry).Layer(0, "").Param("b", {.shape = {4, 60}});
  const Layout layout =
      Layout::Create(registry, 0, {}, {.mesh = {.data = 2}, .zero = 1});
  // 600 elements and 40 of padding, then 240: 4 blocks of 256 over two.
  const Descriptor a =
      OwnersOf(layout, TensorOf(layout, "a"), StateExtent::kElements);
  const Descriptor expected = {
      {.rect = {0, 8, 0, 60}, .rank = 0, .offset = 0, .pitch = 60},
      {.rect = {8, 1, 0, 32}, .rank = 0, .offset = 480, .pitch = 60},
      {.rect = {8, 1, 32, 28}, .rank = 1, .offset = 512, .pitch = 60},
      {.rect = {9, 1, 0, 60}, .rank = 1, .offset = 540, .pitch = 60}};
  EXPECT_EQ(a, expected);
  EXPECT_EQ(
      DescriptorOf(layout, TensorOf(layout, "a"), StateExtent::kElements, false)
          .size(),
      2u);
  const Descriptor ranges = {
      {.rect = {0, 512, 0, 1}, .rank = 0, .offset = 0, .pitch = 1},
      {.rect = {512, 88, 0, 1}, .rank = 1, .offset = 512, .pitch = 1}};
  EXPECT_EQ(AsRanges(a, {10, 60}), ranges);
  // Of b, counted from its own start, all is rank 1's.
  const Descriptor b =
      OwnersOf(layout, TensorOf(layout, "b"), StateExtent::kElements);
  const Descriptor expected_b = {
      {.rect = {0, 4, 0, 60}, .rank = 1, .param = 1, .offset = 0, .pitch = 60}};
  EXPECT_EQ(b, expected_b);
}

// Each of several matrices is cut, and has statistics of its own.
TEST(DescriptorTest, StatisticsOfMatricesThatAreCut) {
  ParamRegistry registry;
  Scope(registry).Layer(0, "").Param(
      "a", {.shape = {2, 4, 3}, .split = Split::kOut});
  Scope(registry).Layer(0, "").Param("b",
                                     {.shape = {2, 3, 4}, .split = Split::kIn});
  const Layout layout =
      Layout::Create(registry, 0, {}, {.mesh = {.tensor = 2}});
  const auto rects = [&](const std::string& name, StateExtent grid) {
    std::vector<Rect> second;
    for (const Extent& extent :
         DescriptorOf(layout, TensorOf(layout, name), grid, false)) {
      if (extent.rank == 1) second.push_back(extent.rect);
    }
    return second;
  };
  using Rects = std::vector<Rect>;
  EXPECT_EQ(rects("a", StateExtent::kElements),
            (Rects{{2, 2, 0, 3}, {6, 2, 0, 3}}));
  EXPECT_EQ(rects("a", StateExtent::kRows),
            (Rects{{0, 1, 2, 2}, {1, 1, 2, 2}}));
  EXPECT_EQ(rects("a", StateExtent::kColumns),
            (Rects{{0, 1, 0, 3}, {1, 1, 0, 3}}));
  EXPECT_EQ(rects("b", StateExtent::kElements), (Rects{{0, 6, 2, 2}}));
  EXPECT_EQ(rects("b", StateExtent::kRows), (Rects{{0, 2, 0, 3}}));
  EXPECT_EQ(rects("b", StateExtent::kColumns), (Rects{{0, 2, 2, 2}}));
}

TEST(DescriptorDeathTest, StatisticsOfPartsOfSeveralMatrices) {
  EXPECT_DEATH(StatisticsOf({{2, 4, 0, 3}}, {2, 4, 3}, StateExtent::kRows),
               "a part of several matrices");
}

// However many ranks there are, one plans what it has and wants.
TEST(DescriptorTest, PlansOfARankAreOfItsOwn) {
  constexpr int kMany = 512;
  ParamRegistry registry;
  Scope(registry).Layer(0, "").Param("a", {.shape = {kMany, 512}});
  const Layout layout =
      Layout::Create(registry, 0, {}, {.mesh = {.data = kMany}, .zero = 1});
  const LogicalTensor& tensor = layout.tensors()[0];
  const Descriptor shards = OwnersOf(layout, tensor, StateExtent::kElements);
  const Descriptor whole =
      DescriptorOf(layout, tensor, StateExtent::kElements, false);
  Descriptor turned = shards;
  for (Extent& extent : turned) extent.rank = kMany - 1 - extent.rank;
  std::reverse(turned.begin(), turned.end());
  for (const int rank : {0, 300, kMany - 1}) {
    const CopyPlan stays = PlanCopyOn(rank, shards, shards, {shards});
    EXPECT_EQ(stays.steps.size(), 1u);
    EXPECT_FALSE(stays.crosses);
    const CopyPlan moves = PlanCopyOn(rank, shards, shards, {turned});
    ASSERT_EQ(moves.steps.size(), 2u);  // one is sent, one comes
    EXPECT_EQ(moves.steps[0].to.size(), 1u);
    EXPECT_EQ(moves.steps[1].to.size(), 1u);
    const CopyPlan gathers = PlanCopyOn(rank, shards, shards, {whole});
    ASSERT_EQ(gathers.steps.size(), size_t{kMany});
    for (const CopyStep& step : gathers.steps) {
      EXPECT_EQ(step.to.size(), step.from.rank == rank ? size_t{kMany} : 1u);
    }
  }
}

// Of a rectangle that several own, and whole rows of it, as few pieces as are.
TEST(DescriptorTest, WhatIsMissingIsCutByItsOwnersAlone) {
  const Descriptor owners = {{.rect = {0, 8, 4, 4}, .rank = 0, .pitch = 4},
                             {.rect = {0, 8, 0, 4}, .rank = 1, .pitch = 4}};
  const Descriptor wants = {{.rect = {2, 4, 2, 4}, .rank = 2, .pitch = 4}};
  const auto steps = PlanCopy(owners, owners, {wants});
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].from.rect, (Rect{2, 4, 4, 2}));
  EXPECT_EQ(steps[1].from.rect, (Rect{2, 4, 2, 2}));
}

TEST(DescriptorTest, PlansSayWhatIsNowhere) {
  const Descriptor owners = {{.rect = {0, 4, 0, 1}, .rank = 0, .pitch = 1}};
  const Descriptor wants = {{.rect = {0, 6, 0, 1}, .rank = 1, .pitch = 1}};
  EXPECT_FALSE(PlanCopyOn(1, owners, owners, {wants}).complete);
  EXPECT_TRUE(PlanCopyOn(1, owners, owners, {owners}).complete);
}

std::vector<CopyStep> PiecesOf(const CopyStep& step, int64_t most,
                               const Grain& grain) {
  std::vector<CopyStep> pieces;
  EXPECT_EQ(CutIntoPieces(step, most, grain,
                          [&](CopyStep piece) {
                            pieces.push_back(std::move(piece));
                            return absl::OkStatus();
                          }),
            absl::OkStatus());
  return pieces;
}

CopyStep OneStep(const Rect& rect, int64_t offset) {
  const Extent from{.rect = rect, .pitch = rect.columns};
  const Extent to{.rect = rect, .offset = offset, .pitch = rect.columns};
  return {from, {{to, 0}}};
}

TEST(CutIntoPiecesTest, EachValueIsInOnePiece) {
  for (const Rect& rect :
       {Rect{0, 10, 0, 7}, Rect{3, 2, 5, 50}, Rect{0, 100, 0, 1}}) {
    for (const int64_t most : {1, 6, 7, 20, 1000}) {
      Descriptor pieces;
      for (const CopyStep& piece : PiecesOf(OneStep(rect, 0), most, Grain{})) {
        EXPECT_LE(piece.from.rect.elements(), most);
        EXPECT_EQ(piece.to[0].extent.rect, piece.from.rect);
        pieces.push_back(piece.from);
      }
      EXPECT_EQ(PlacesOf({pieces}, {100, 100})[0],
                PlacesOf({{OneStep(rect, 0).from}}, {100, 100})[0]);
    }
  }
}

TEST(CutIntoPiecesTest, PiecesEndWithGrains) {
  // Values 64 .. 1564 of the slab, of which those from 512 on are here.
  const Grain grain{.size = 256, .first = 64, .elements = 1500};
  std::vector<int64_t> rows;
  for (const CopyStep& piece :
       PiecesOf(OneStep({448, 1052, 0, 1}, 448), 512, grain)) {
    rows.push_back(piece.from.rect.rows);
  }
  EXPECT_EQ(rows, (std::vector<int64_t>{512, 512, 28}));
  rows.clear();
  for (const CopyStep& piece :
       PiecesOf(OneStep({0, 1500, 0, 1}, 0), 512, grain)) {
    rows.push_back(piece.from.rect.rows);
  }
  EXPECT_EQ(rows, (std::vector<int64_t>{448, 512, 512, 28}));
}

TEST(CutIntoPiecesTest, EndsWithAVisitThatFails) {
  int visits = 0;
  const auto visit = [&](CopyStep) {
    return ++visits == 2 ? absl::DataLossError("lost") : absl::OkStatus();
  };
  EXPECT_EQ(CutIntoPieces(OneStep({0, 10, 0, 1}, 0), 2, Grain{}, visit),
            absl::DataLossError("lost"));
  EXPECT_EQ(visits, 2);
}

TEST(CutIntoPiecesDeathTest, CutGrains) {
  const Grain grain{.size = 256, .first = 64, .elements = 1500};
  EXPECT_DEATH(PiecesOf(OneStep({0, 400, 0, 1}, 0), 512, grain),
               "cuts what is kept in blocks of 256");
}

// Whoever owns a slab: where nobody has one for himself, that is who owns what.
TEST(DescriptorTest, AReductionKnowsNoOwners) {
  for (const WholeTensors whole : {WholeTensors::kHidden, WholeTensors::kAll}) {
    ParamRegistry registry;
    testing::DeclareToy(registry, 3, 37);
    const auto layout = [&](WholeTensors tensors) {
      return Layout::Create(registry, 3, {},
                            {.mesh = {.data = 3, .pipeline = 2},
                             .zero = 1,
                             .whole_tensors = tensors});
    };
    const Layout even = layout(WholeTensors::kNone), owned = layout(whole);
    int differ = 0;
    for (const LogicalTensor& tensor : owned.tensors()) {
      const Descriptor reduced = ReducedOf(owned, tensor);
      EXPECT_EQ(reduced, OwnersOf(even, tensor, StateExtent::kElements));
      differ += reduced != OwnersOf(owned, tensor, StateExtent::kElements);
    }
    EXPECT_GT(differ, 0);
  }
}

}  // namespace
}  // namespace delink::descriptor_test
