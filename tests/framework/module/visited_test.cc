// Layouts of stages that visit some blocks of a model: they are those of a
// model that has no others, but for the numbers that layers and names bear.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "framework/module/binder.h"
#include "tests/framework/module/random_layouts.h"
#include "tests/framework/module/toy_model.h"

namespace delink::visited_test {
namespace {

using testing::Dice;

std::string BlockName(int block) { return "blocks/" + std::to_string(block); }

// A model, and one of the visited blocks alone, in whose numbers a block is its
// place among them.
class Pair {
 public:
  explicit Pair(Dice& dice) : blocks_(dice.Between(1, 7)) {
    for (int block = 0; block < blocks_; ++block) {
      if (dice.Below(3) > 0) visited_.push_back(block);
    }
    if (visited_.empty()) visited_.push_back(dice.Below(blocks_));
    const int width = dice.Between(1, 9);
    std::vector<bool> attends;
    for (int block = 0; block < blocks_; ++block) {
      attends.push_back(dice.Below(4) > 0);
    }
    std::vector<int> all(static_cast<size_t>(blocks_));
    std::iota(all.begin(), all.end(), 0);
    Declare(many_, width, all, attends);
    Declare(few_, width, visited_, attends);
    ShareSome(dice);
  }

  Layout Many(const Layout::Options& options) const {
    return Layout::Create(many_, blocks_, many_sharing_, options);
  }
  Layout Few(const Layout::Options& options) const {
    return Layout::Create(few_, few_blocks(), few_sharing_, options);
  }
  int few_blocks() const { return static_cast<int>(visited_.size()); }

  // What few calls a layer or a name of many.
  int Layer(int layer) const {
    if (layer == 0) return 0;
    if (layer == blocks_ + 1) return few_blocks() + 1;
    return PlaceOf(layer - 1) + 1;
  }
  std::string Name(const std::string& name) const {
    for (const int block : visited_) {
      const std::string prefix = BlockName(block) + "/";
      if (name.starts_with(prefix)) {
        return BlockName(PlaceOf(block)) + "/" + name.substr(prefix.size());
      }
    }
    return name;
  }

 private:
  int PlaceOf(int block) const {
    const auto at = std::find(visited_.begin(), visited_.end(), block);
    DELINK_CHECK(at != visited_.end()) << block;
    return static_cast<int>(at - visited_.begin());
  }

  static void Declare(ParamRegistry& registry, int width,
                      const std::vector<int>& blocks,
                      const std::vector<bool>& attends) {
    const Scope root(registry);
    const Scope embed = root.Layer(0, "embed").Part("embedding");
    embed.Param("weight", {.shape = {11, width}, .split = Split::kOut});
    int layer = 1;
    for (const int number : blocks) {
      const Scope block = root.Layer(layer, BlockName(layer - 1));
      ++layer;
      const Scope mlp = (block / "mlp").Part("mlp");
      mlp.Param("up", {.shape = {5, 3, width}, .split = Split::kOut});
      mlp.Param("norm", {.shape = {width}});
      if (!At(attends, number)) continue;
      const Scope attention = (block / "attn").Part("attention");
      attention.Param("out", {.shape = {width, width}, .split = Split::kIn});
    }
    const Scope tail = root.Layer(layer, "");
    tail.Param("norm", {.shape = {width}});
    (tail / "head").Link("embed/weight");
  }

  // Of MLPs alone: not all blocks have attention.
  void ShareSome(Dice& dice) {
    many_sharing_.visited = visited_;
    const int sets = dice.Between(1, few_blocks());
    std::map<int, int> first;  // block, by set
    std::vector<int> few;
    std::vector<int> many(static_cast<size_t>(blocks_), -1);
    for (const int block : visited_) {
      const int leader = first.emplace(dice.Below(sets), block).first->second;
      At(many, block) = leader;
      few.push_back(PlaceOf(leader));
    }
    many_sharing_.leaders["mlp"] = many;
    few_sharing_.leaders["mlp"] = few;
  }

  int blocks_;
  std::vector<int> visited_;
  ParamRegistry many_, few_;
  SharingMap many_sharing_, few_sharing_;
};

std::vector<int> Layers(const Pair& pair, std::vector<int> layers) {
  for (int& layer : layers) layer = pair.Layer(layer);
  return layers;
}

void CheckSlab(const Pair& pair, const Layout& many, const Slab& a,
               const Layout& few, const Slab& b) {
  ASSERT_EQ(pair.Name(a.name), b.name);
  ASSERT_EQ(a.part, b.part);
  ASSERT_EQ(pair.Layer(a.leader), b.leader);
  ASSERT_EQ(Layers(pair, a.layers), b.layers);
  ASSERT_EQ(a.elements, b.elements);
  ASSERT_EQ(a.block, b.block);
  ASSERT_EQ(a.params.size(), b.params.size());
  for (size_t p = 0; p < a.params.size(); ++p) {
    ASSERT_EQ(pair.Name(many.registry().decl(a.params[p].decl).name),
              few.registry().decl(b.params[p].decl).name);
    ASSERT_EQ(a.params[p].offset, b.params[p].offset);
    ASSERT_EQ(a.params[p].elements, b.params[p].elements);
  }
}

void CheckLocalSlabs(const Pair& pair, const Layout& many, const Layout& few) {
  ASSERT_EQ(many.local_slabs().size(), few.local_slabs().size());
  ASSERT_EQ(many.placement().rows, few.placement().rows);
  for (size_t s = 0; s < few.local_slabs().size(); ++s) {
    const LocalSlab& a = many.local_slabs()[s];
    const LocalSlab& b = few.local_slabs()[s];
    ASSERT_NO_FATAL_FAILURE(CheckSlab(pair, many, a.slab, few, b.slab));
    ASSERT_EQ(a.logical, b.logical);
    ASSERT_EQ(a.rects, b.rects);
    ASSERT_EQ(a.params, b.params);
    ASSERT_EQ(*a.group, *b.group);
    for (int rank = 0; rank < few.ranks(); ++rank) {
      const int slab = static_cast<int>(s);
      ASSERT_EQ(many.OwnedBy(slab, rank), few.OwnedBy(slab, rank));
    }
  }
  for (int rank = 0; rank < few.ranks(); ++rank) {
    ASSERT_EQ(Layers(pair, many.LayersOf(rank)), few.LayersOf(rank));
    ASSERT_EQ(many.LocalSlabsOf(rank), few.LocalSlabsOf(rank));
  }
}

Descriptor Extents(const Layout& layout, const LogicalTensor& tensor,
                   bool sharded) {
  return DescriptorOf(layout, tensor, StateExtent::kElements, sharded);
}

void CheckTensors(const Pair& pair, const Layout& many, const Layout& few) {
  ASSERT_EQ(many.tensors().size(), few.tensors().size());
  for (size_t i = 0; i < few.tensors().size(); ++i) {
    const LogicalTensor& a = many.tensors()[i];
    const LogicalTensor& b = few.tensors()[i];
    ASSERT_EQ(pair.Name(a.name), b.name);
    ASSERT_EQ(pair.Name(a.link), b.link);
    ASSERT_EQ(a.slab, b.slab);
    ASSERT_EQ(a.param, b.param);
    ASSERT_EQ(a.offset, b.offset);
    for (const bool sharded : {false, true}) {
      ASSERT_EQ(Extents(many, a, sharded), Extents(few, b, sharded));
    }
  }
}

class RandomVisits : public ::testing::TestWithParam<int> {};

TEST_P(RandomVisits, AreThoseOfAModelWithoutTheOthers) {
  Dice dice(static_cast<uint64_t>(GetParam()));
  for (int trial = 0; trial < 500; ++trial) {
    SCOPED_TRACE(trial);
    const Pair pair(dice);
    const Layout::Options options =
        testing::AnyOptions(dice, pair.few_blocks() + 2, 48);
    const Layout many = pair.Many(options);
    const Layout few = pair.Few(options);
    ASSERT_EQ(many.places(), few.places());
    ASSERT_EQ(many.options().chunks, few.options().chunks);
    ASSERT_EQ(Layers(pair, many.visited()), few.visited());
    ASSERT_EQ(many.slabs().size(), few.slabs().size());
    for (size_t s = 0; s < few.slabs().size(); ++s) {
      ASSERT_NO_FATAL_FAILURE(
          CheckSlab(pair, many, many.slabs()[s], few, few.slabs()[s]));
    }
    ASSERT_NO_FATAL_FAILURE(CheckLocalSlabs(pair, many, few));
    ASSERT_NO_FATAL_FAILURE(CheckTensors(pair, many, few));
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomVisits, ::testing::Range(0, 4));

class VisitedTest : public ::testing::Test {
 protected:
  static constexpr int kBlocks = 5;
  VisitedTest() { testing::DeclareToy(registry_, kBlocks, 7); }

  SharingMap map_{.visited = {1, 2, 4},
                  .leaders = {{"mlp", {-1, 1, 2, -1, 1}}}};
  std::unique_ptr<Device> device_ = NewCpuDevice();
  ParamRegistry registry_;
};

TEST_F(VisitedTest, NothingIsKeptOfOtherBlocks) {
  const auto store = testing::MakeStore(*device_, registry_, kBlocks, map_);
  EXPECT_EQ(store->visited(), (std::vector<int>{0, 2, 3, 5, 6}));
  // 2 outside of blocks, attention and norm of each, and 2 MLPs.
  EXPECT_EQ(store->slabs().size(), 2u + 3 * 2 + 2);
  EXPECT_EQ(testing::SlabNamed(*store, "blocks/1/mlp"), 2);
  EXPECT_EQ(store->slabs_of_layer(2).size(), 3u);
  EXPECT_TRUE(store->slabs_of_layer(1).empty());
  EXPECT_TRUE(store->slabs_of_layer(4).empty());
  ParamRegistry three;
  testing::DeclareToy(three, 3, 7);
  SharingMap sharing;
  sharing.leaders["mlp"] = {0, 1, 0};
  const auto few = testing::MakeStore(*device_, three, 3, sharing);
  EXPECT_EQ(store->unique_parameters(), few->unique_parameters());
  EXPECT_EQ(store->virtual_parameters(), few->virtual_parameters());
  EXPECT_LT(store->unique_parameters(), store->virtual_parameters());
}

TEST_F(VisitedTest, LayersAreBoundByTheirNumbers) {
  const auto store = testing::MakeStore(*device_, registry_, kBlocks, map_);
  Binder binder(*store);
  for (const int layer : store->visited()) binder.Bind(layer, nullptr);
  const auto weight = [&](const std::string& name) {
    for (const ParamDecl& decl : registry_.decls) {
      if (decl.name == name) return decl.param->weight().data();
    }
    return static_cast<void*>(nullptr);
  };
  EXPECT_EQ(weight("blocks/1/mlp/up"), weight("blocks/4/mlp/up"));
  EXPECT_NE(weight("blocks/1/mlp/up"), weight("blocks/2/mlp/up"));
  EXPECT_EQ(
      weight("blocks/4/mlp/up"),
      store->at(testing::SlabNamed(*store, "blocks/1/mlp"), Plane::kWeight, 0));
  EXPECT_DEATH(weight("blocks/0/mlp/up"), "outside a visit");
  EXPECT_DEATH(binder.Bind(1, nullptr), "");
}

TEST_F(VisitedTest, OnlyVisitedBlocksHaveLeaders) {
  EXPECT_EQ(map_.Leader("mlp", 4), 1);
  EXPECT_EQ(map_.Leader("attention", 4), 4);
  EXPECT_DEATH(map_.Leader("mlp", 3), "mlp of block 3");
  EXPECT_DEATH(map_.Leader("attention", 0), "attention of block 0");
  map_.leaders["mlp"][4] = 0;
  EXPECT_DEATH(map_.Leader("mlp", 4), "leader 0");
  map_.visited = {2, 1};
  EXPECT_DEATH(Layout::Create(registry_, kBlocks, map_, {}), "");
}

}  // namespace
}  // namespace delink::visited_test
