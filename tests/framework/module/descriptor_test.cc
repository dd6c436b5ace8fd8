// Layouts of random models over random meshes, and the copies from one to
// another. Tensors are a few elements, so that every one can be looked at.
#include "framework/module/descriptor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/framework/module/toy_model.h"

namespace delink {
namespace {

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  int Below(int n) {
    return static_cast<int>(random_() % static_cast<uint64_t>(n));
  }
  int Between(int low, int high) { return low + Below(high - low + 1); }
  bool Maybe() { return Below(2) == 0; }

 private:
  std::mt19937_64 random_;
};

// A part that is cut by rows and by columns, one that is not, stacked rows, and
// extents that divide by nothing.
void DeclareBlock(const Scope& block, int width) {
  const Scope attention = (block / "attn").Part("attention");
  attention.Param("norm", {.shape = {width}});
  attention.Param("qkv", {.shape = {width + 4, width},
                          .split = Split::kOut,
                          .stacked = {width, 3, 1}});
  attention.Param("out", {.shape = {width, width}, .split = Split::kIn});
  const Scope mlp = (block / "mlp").Part("mlp");
  mlp.Param("up", {.shape = {5, 3, width}, .split = Split::kOut});
  mlp.Param("bias", {.shape = {15}, .split = Split::kOut});
}

struct Model {
  ParamRegistry registry;
  int blocks = 0;
};

void Declare(Model& model, Dice& dice) {
  model.blocks = dice.Between(1, 4);
  const int width = dice.Between(1, 9);
  const Scope root(model.registry);
  const Scope embed = root.Layer(0, "embed").Part("embedding");
  embed.Param("weight",
              {.shape = {dice.Between(1, 30), width}, .split = Split::kOut});
  for (int i = 0; i < model.blocks; ++i) {
    DeclareBlock(root.Layer(i + 1, "blocks/" + std::to_string(i)), width);
  }
  const Scope tail = root.Layer(model.blocks + 1, "");
  tail.Param("norm", {.shape = {width}});
  (tail / "head").Link("embed/weight");
}

SharingMap AnySharing(const Model& model, Dice& dice) {
  SharingMap map;
  for (const char* part : {"attention", "mlp"}) {
    const int groups = dice.Between(1, model.blocks);
    std::vector<int>& leaders = map.leaders[part];
    for (int i = 0; i < model.blocks; ++i) leaders.push_back(i % groups);
  }
  return map;
}

Layout AnyLayout(const Model& model, Dice& dice) {
  Layout::Options options;
  do {
    options.mesh = {.tensor = dice.Between(1, 5),
                    .context = dice.Between(1, 2),
                    .data = dice.Between(1, 6),
                    .pipeline = dice.Between(1, 4)};
  } while (options.mesh.ranks() > 64);
  for (int i = 0; i < kAxes; ++i) {
    std::swap(options.mesh.order[static_cast<size_t>(i)],
              options.mesh.order[static_cast<size_t>(dice.Between(i, 3))]);
  }
  if (dice.Maybe()) {
    for (int layer = 0; layer < model.blocks + 2; ++layer) {
      options.stages.push_back(dice.Below(options.mesh.pipeline));
    }
    std::sort(options.stages.begin(), options.stages.end());
  }
  options.zero = dice.Below(2);
  options.whole_tensors = static_cast<WholeTensors>(dice.Below(3));
  options.sequence = dice.Maybe();
  return Layout::Create(model.registry, model.blocks, AnySharing(model, dice),
                        options);
}

// Calls visit(row, column, offset) for the elements of an extent.
template <typename Visit>
void ForEachElement(const Extent& extent, Visit visit) {
  for (int64_t r = 0; r < extent.rect.rows; ++r) {
    for (int64_t c = 0; c < extent.rect.columns; ++c) {
      visit(extent.rect.row + r, extent.rect.column + c,
            extent.offset + r * extent.pitch + c);
    }
  }
}

// How often each element of a tensor is in the extents, by its number.
std::vector<int> CountsOf(const Descriptor& extents, const Shape& shape) {
  const Rect whole = WholeOf(shape);
  std::vector<int> counts(static_cast<size_t>(whole.elements()), 0);
  for (const Extent& extent : extents) {
    ForEachElement(extent, [&](int64_t row, int64_t column, int64_t) {
      ++counts[static_cast<size_t>(row * whole.columns + column)];
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

// (local slab, offset) -> an element, of what lies on a rank.
using Places = std::map<std::pair<int, int64_t>, int64_t>;

std::map<int, Places> PlacesOf(const Descriptor& extents, const Shape& shape) {
  const int64_t columns = WholeOf(shape).columns;
  std::map<int, Places> places;
  for (const Extent& extent : extents) {
    ForEachElement(extent, [&](int64_t row, int64_t column, int64_t offset) {
      const bool fresh =
          places[extent.rank]
              .emplace(std::pair{extent.slab, offset}, row * columns + column)
              .second;
      EXPECT_TRUE(fresh) << "two elements in one place";
    });
  }
  return places;
}

// Of every element one owner, and it has it.
void CheckOwners(const Layout& layout, const LogicalTensor& tensor) {
  const Descriptor owned = DescriptorOf(layout, tensor, true);
  const Descriptor held = DescriptorOf(layout, tensor, false);
  for (const int count : CountsOf(owned, tensor.shape)) ASSERT_EQ(count, 1);
  const auto places = PlacesOf(held, tensor.shape);
  for (const auto& [rank, elements] : PlacesOf(owned, tensor.shape)) {
    const std::vector<int> here = layout.LocalSlabsOf(rank);
    for (const auto& [place, element] : elements) {
      ASSERT_EQ(places.at(rank).at(place), element);
      ASSERT_TRUE(std::count(here.begin(), here.end(), place.first));
      const Range range = layout.OwnedBy(place.first, rank);
      ASSERT_TRUE(place.second >= range.begin && place.second < range.end);
    }
  }
}

// Carries numbered elements by the plan: all arrive, each once, and nothing
// crosses the network that was there before.
void CheckCopy(const Layout& from, const Layout& to, const std::string& name,
               bool from_sharded, bool to_sharded) {
  const LogicalTensor& source = TensorOf(from, name);
  const LogicalTensor& target = TensorOf(to, name);
  const Descriptor before = DescriptorOf(from, source, from_sharded);
  const Descriptor after = DescriptorOf(to, target, to_sharded);
  const auto was = PlacesOf(before, source.shape);
  const auto wanted = PlacesOf(after, target.shape);
  std::map<int, Places> arrived;
  int64_t crossed = 0;
  for (const CopyStep& step :
       PlanCopy(DescriptorOf(from, source, true), before, after)) {
    ASSERT_FALSE(step.to.empty());
    std::vector<int64_t> read;
    ForEachElement(step.from, [&](int64_t row, int64_t column, int64_t offset) {
      read.push_back(
          was.at(step.from.rank).at(std::pair{step.from.slab, offset}));
      ASSERT_EQ(read.back(), row * WholeOf(source.shape).columns + column);
    });
    for (const Extent& place : step.to) {
      ASSERT_EQ(place.rect, step.from.rect);
      if (place.rank != step.from.rank) crossed += place.rect.elements();
      auto value = read.begin();
      ForEachElement(place, [&](int64_t, int64_t, int64_t offset) {
        const bool fresh = arrived[place.rank]
                               .emplace(std::pair{place.slab, offset}, *value++)
                               .second;
        ASSERT_TRUE(fresh) << "an element came twice";
      });
    }
  }
  ASSERT_EQ(arrived, wanted);
  // The least: what a rank wants and has not.
  int64_t least = 0;
  for (const auto& [rank, places] : wanted) {
    std::vector<bool> has(static_cast<size_t>(source.shape.elements()), false);
    if (const auto at = was.find(rank); at != was.end()) {
      for (const auto& [place, element] : at->second) {
        has[static_cast<size_t>(element)] = true;
      }
    }
    for (const auto& [place, element] : places) {
      least += has[static_cast<size_t>(element)] ? 0 : 1;
    }
  }
  ASSERT_EQ(crossed, least);
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
    const auto at = static_cast<size_t>(
        dice.Below(static_cast<int>(from.tensors().size())));
    const std::string name = from.tensors()[at].name;
    ASSERT_NO_FATAL_FAILURE(CheckOwners(from, from.tensors()[at]));
    ASSERT_NO_FATAL_FAILURE(
        CheckCopy(from, to, name, dice.Maybe(), dice.Maybe()));
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
  const Descriptor a = DescriptorOf(layout, TensorOf(layout, "a"), true);
  const Descriptor expected = {
      {.rect = {0, 8, 0, 60}, .rank = 0, .offset = 0, .pitch = 60},
      {.rect = {8, 1, 0, 32}, .rank = 0, .offset = 480, .pitch = 60},
      {.rect = {8, 1, 32, 28}, .rank = 1, .offset = 512, .pitch = 60},
      {.rect = {9, 1, 0, 60}, .rank = 1, .offset = 540, .pitch = 60}};
  EXPECT_EQ(a, expected);
  EXPECT_EQ(DescriptorOf(layout, TensorOf(layout, "a"), false).size(), 2u);
}

TEST(DescriptorTest, OneReadGoesToAllWhoWantIt) {
  ParamRegistry registry;
  Scope(registry).Layer(0, "").Param("a", {.shape = {8, 8}});
  const Layout layout = Layout::Create(registry, 0, {}, {.mesh = {.data = 4}});
  const LogicalTensor& tensor = layout.tensors()[0];
  const Descriptor owners = DescriptorOf(layout, tensor, true);
  const auto steps =
      PlanCopy(owners, owners, DescriptorOf(layout, tensor, false));
  // All is rank 0's: a block is more than the tensor.
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].to[0].rank, 0);
  ASSERT_EQ(steps[1].to.size(), 3u);
  EXPECT_EQ(steps[1].to[2].rank, 3);
}

}  // namespace
}  // namespace delink
