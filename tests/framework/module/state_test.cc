// The optimizer's state in all its forms: who has which of it, and that it
// takes the memory that is told. Its values: store_values_test.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "framework/base/at.h"
#include "tests/framework/module/toy_model.h"

namespace delink::state_test {
namespace {

using testing::FactoredStates;
using testing::kStorages;
using testing::MakeStore;
using testing::MomentsIn;

// Of all of a parameter's state, whatever of it is in the slab.
Shape StateShapeOf(const ParamStore& store, int slab, int state, size_t param) {
  const SlabParam& place = store.slab(slab).params[param];
  return StateShape(store.registry().decl(place.decl).spec.shape,
                    store.state(slab, state, param).format.extent);
}

constexpr int kBlocks = 3;
constexpr int64_t kWidth = 37;  // slabs of several blocks, cut anywhere

// Of a parameter's state, what a rank owns: the values of the elements of the
// slab that it owns; of factored statistics all where the first element is.
Range OwnedBy(const ParamStore& store, int slab, int state, size_t param,
              int rank) {
  const SlabParam& place = store.slab(slab).params[param];
  const Range owned = store.OwnedBy(slab, rank);
  const int64_t begin =
      std::clamp<int64_t>(owned.begin - place.offset, 0, place.elements);
  const int64_t end =
      std::clamp<int64_t>(owned.end - place.offset, begin, place.elements);
  const Shape shape = StateShapeOf(store, slab, state, param);
  if (shape == store.registry().decl(place.decl).spec.shape) {
    return {begin, end};
  }
  return {0, begin == 0 && end > 0 ? shape.elements() : 0};
}

class StateTest : public ::testing::Test {
 protected:
  StateTest() { testing::DeclareToy(registry_, kBlocks, kWidth); }

  std::unique_ptr<ParamStore> Store(const testing::StoreOptions& options,
                                    int zero = 1) {
    return MakeStore(*device_, registry_, kBlocks, {}, zero, options);
  }

  // Calls visit(slab, state, param) for all of a store.
  template <typename Visit>
  static void ForEach(const ParamStore& store, Visit visit) {
    for (size_t s = 0; s < store.slabs().size(); ++s) {
      for (size_t k = 0; k < store.states().size(); ++k) {
        for (size_t p = 0; p < store.slabs()[s].params.size(); ++p) {
          visit(static_cast<int>(s), static_cast<int>(k), p);
        }
      }
    }
  }

  std::unique_ptr<Device> device_ = NewCpuDevice();
  ParamRegistry registry_;
};

TEST_F(StateTest, TakesTheMemoryItTells) {
  std::map<StateStorage, int64_t> bytes;
  for (const StateStorage storage : kStorages) {
    const auto store = Store({.states = MomentsIn(storage)});
    EXPECT_EQ(store->bytes(Plane::kWeight) + store->bytes(Plane::kGradient) +
                  store->state_bytes(),
              device_->bytes_in_use());
    bytes[storage] = store->bytes(Plane::kState0);
  }
  // Of the matrices of blocks 2, and 1 and 4/256 bytes a value instead of 4;
  // codes begin at multiples of 64, and scales take multiples of 64 bytes.
  int64_t hidden = 0, scales = 0;
  const auto store = Store({});
  for (const Slab& slab : store->slabs()) {
    for (size_t p = 0; p < slab.params.size(); ++p) {
      const auto decl = static_cast<size_t>(slab.params[p].decl);
      if (KindOf(registry_.decls[decl], kBlocks) != ParamKind::kHidden) {
        continue;
      }
      const int64_t begin = slab.params[p].offset;
      const int64_t next = p + 1 < slab.params.size()
                               ? slab.params[p + 1].offset
                               : slab.ShardElements(1);
      hidden += next - begin;
      const int64_t blocks =
          (begin + slab.params[p].elements + 255) / 256 - begin / 256;
      scales += (blocks * 4 + 63) / 64 * 64;
    }
  }
  ASSERT_GT(hidden, 10'000);
  EXPECT_EQ(bytes[StateStorage::kExact] - bytes[StateStorage::kBF16],
            2 * hidden);
  EXPECT_EQ(bytes[StateStorage::kExact] - bytes[StateStorage::kBlock8],
            3 * hidden - scales);
}

TEST_F(StateTest, FactoredStatisticsGoWithTheirOwner) {
  const auto whole = Store({.states = FactoredStates()});
  for (const int ranks : {2, 5}) {
    std::vector<int> owners(whole->slabs().size(), 0);
    for (int rank = 0; rank < ranks; ++rank) {
      const auto store = Store({.rank = rank,
                                .ranks = ranks,
                                .states = FactoredStates(),
                                .whole_tensors = WholeTensors::kAll});
      for (size_t s = 0; s < store->slabs().size(); ++s) {
        const int slab = static_cast<int>(s);
        const Range owned = store->owned(slab);
        EXPECT_EQ(owned, store->held(slab, Plane::kState0));
        if (owned.size() == 0) continue;
        EXPECT_EQ(owned.size(), store->slabs()[s].elements);
        ++owners[s];
      }
      ForEach(*store, [&](int slab, int state, size_t param) {
        const Shape shape = StateShapeOf(*store, slab, state, param);
        const Range held = store->state(slab, state, param).held;
        EXPECT_EQ(held, OwnedBy(*store, slab, state, param, rank));
        EXPECT_EQ(held.size(),
                  store->owned(slab).size() > 0 ? shape.elements() : 0);
      });
    }
    EXPECT_EQ(owners, std::vector<int>(owners.size(), 1));
  }
  const SlabParam& up =
      whole->slab(testing::SlabNamed(*whole, "blocks/1/mlp")).params[0];
  const Shape& shape = At(registry_.decls, up.decl).spec.shape;
  EXPECT_EQ(StateShape(shape, StateExtent::kRows), (Shape{shape[0]}));
  EXPECT_EQ(StateShape(shape, StateExtent::kColumns), (Shape{shape[1]}));
  EXPECT_EQ(StateShape({2, 3, 5}, StateExtent::kColumns), (Shape{2, 5}));
}

// Only what asks for it is kept whole: Muon's embeddings are cut as ever.
TEST_F(StateTest, OwnersOfHiddenMatricesAlone) {
  const auto store =
      Store({.rank = 0, .ranks = 4, .whole_tensors = WholeTensors::kHidden});
  const auto owner = [&](const char* slab) {
    return store->placement(testing::SlabNamed(*store, slab)).owner;
  };
  EXPECT_EQ(owner("embed/embedding"), kNoOwner);
  EXPECT_GE(owner("blocks/0/mlp"), 0);
  const auto unsharded =
      Store({.rank = 0, .ranks = 4, .whole_tensors = WholeTensors::kHidden}, 0);
  for (const PlacementRow& row : unsharded->layout().placement().rows) {
    EXPECT_EQ(row.owner, kNoOwner);
  }
}

TEST(PlacementTest, TheLargestSlabsGoFirstToWhoHasLeast) {
  ParamRegistry registry;
  const int64_t sizes[] = {2, 3, 9, 4, 5};
  for (int layer = 0; layer < 5; ++layer) {
    Scope(registry)
        .Layer(layer, "layer" + std::to_string(layer))
        .Param("weight", {.shape = {64, sizes[layer]}});
  }
  const Layout layout = Layout::Create(
      registry, 4, {},
      {.mesh = {.data = 2}, .zero = 1, .whole_tensors = WholeTensors::kHidden});
  std::vector<int> owners;
  for (const PlacementRow& row : layout.placement().rows) {
    owners.push_back(row.owner);
  }
  // 9 | 5, 9 | 5 4, 9 3 | 5 4 (of equals the first); the first is cut.
  EXPECT_EQ(owners, (std::vector<int>{kNoOwner, 0, 0, 1, 1}));
}

}  // namespace
}  // namespace delink::state_test
