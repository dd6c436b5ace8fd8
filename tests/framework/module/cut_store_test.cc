// Stores of a few ranks of layouts that cut parameters: what is made by a
// value's number is so by its number in the whole parameter.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "framework/base/at.h"
#include "framework/module/param_store.h"
#include "framework/tensor/bfloat16.h"
#include "tests/framework/module/toy_model.h"

namespace delink::cut_store_test {
namespace {

using testing::NumbersOf;
using testing::Read;

constexpr int kBlocks = 3;

class CutStoreTest : public ::testing::Test {
 protected:
  CutStoreTest() {
    const Scope root(registry_);
    const Init normal = Init::Normal(1);
    root.Layer(0, "embed")
        .Part("embedding")
        .Param("weight",
               {.shape = {29, 7}, .init = normal, .split = Split::kOut});
    for (int i = 0; i < kBlocks; ++i) {
      const Scope block = root.Layer(i + 1, "blocks/" + std::to_string(i));
      const Scope attention = (block / "attn").Part("attention");
      attention.Param("norm", {.shape = {7}, .init = Init::Ones()});
      attention.Param("qkv", {.shape = {13, 7},
                              .init = normal,
                              .split = Split::kOut,
                              .stacked = {7, 5, 1}});
      attention.Param("out",
                      {.shape = {7, 11}, .init = normal, .split = Split::kIn});
      // 60 heads of queries, one of keys and values that all places have.
      attention.Param("heads", {.shape = {124, 7},
                                .init = normal,
                                .split = Split::kOut,
                                .stacked = {120, 2, 2},
                                .unit = 2});
      const Scope mlp = (block / "mlp").Part("mlp");
      mlp.Param("up",
                {.shape = {5, 3, 70}, .init = normal, .split = Split::kOut});
      mlp.Param("bias", {.shape = {15}, .init = normal, .split = Split::kOut});
    }
    root.Layer(kBlocks + 1, "").Param("norm", {.shape = {7}, .init = normal});
  }

  int Between(int low, int high) {
    return low +
           static_cast<int>(random_() % static_cast<uint64_t>(high - low + 1));
  }

  SharingMap AnySharing() {
    SharingMap map;
    for (const char* part : {"attention", "mlp"}) {
      const int groups = Between(1, kBlocks);
      for (int i = 0; i < kBlocks; ++i) {
        map.leaders[part].push_back(i % groups);
      }
    }
    return map;
  }

  Layout AnyLayout(int most_tensor) {
    return Layout::Create(
        registry_, kBlocks, AnySharing(),
        {.mesh = {.tensor = Between(1, most_tensor),
                  .data = Between(1, 3),
                  .pipeline = Between(1, 3)},
         .zero = Between(0, 1),
         .whole_tensors = static_cast<WholeTensors>(Between(0, 2)),
         .sequence = Between(0, 1) == 1});
  }

  std::unique_ptr<ParamStore> Store(const Layout& layout, int rank,
                                    DType dtype = DType::kF32) {
    auto store = ParamStore::Create(
        *device_, layout, rank,
        {.dtype = dtype, .states = testing::MomentsIn(StateStorage::kBF16)});
    DELINK_CHECK(store.ok()) << store.status().ToString();
    return *std::move(store);
  }

  std::mt19937_64 random_{17};
  std::unique_ptr<Device> device_ = NewCpuDevice();
  ParamRegistry registry_;
};

// The parameters themselves, and bf16 weights, which are those rounded.
TEST_F(CutStoreTest, InitialValuesAreThoseOfTheWholeStore) {
  int64_t compared = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const Layout layout = AnyLayout(5);
    const auto whole =
        Store(Layout::Create(registry_, kBlocks, layout.sharing(), {}), 0);
    whole->InitWeights(9);
    const int rank = Between(0, layout.ranks() - 1);
    const auto store = Store(layout, rank, DType::kBF16);
    store->InitWeights(9);
    for (size_t s = 0; s < store->slabs().size(); ++s) {
      const int slab = static_cast<int>(s);
      const LocalSlab& local = store->local(slab);
      const Slab& logical = At(layout.slabs(), local.logical);
      const auto all = Read<float>(*whole, local.logical, Plane::kWeight);
      const auto weights = Read<BFloat16>(*store, slab, Plane::kWeight);
      const auto masters = Read<float>(*store, slab, Plane::kMaster);
      const Range held = store->held(slab, Plane::kMaster);
      for (size_t p = 0; p < local.slab.params.size(); ++p) {
        const int64_t first = logical.params[local.params[p]].offset;
        int64_t at = local.slab.params[p].offset;
        for (const int64_t number : NumbersOf(local, p, registry_)) {
          const float value = At(all, first + number);
          ASSERT_EQ(At(weights, at).bits, BFloat16(value).bits)
              << local.slab.name << " on rank " << rank << ", trial " << trial;
          if (at >= held.begin && at < held.end) {
            ASSERT_EQ(At(masters, at - held.begin), value);
          }
          ++at;
          ++compared;
        }
      }
    }
  }
  EXPECT_GT(compared, 100'000);
}

TEST_F(CutStoreTest, RunsAreInOrderAndOfNeighbours) {
  for (int trial = 0; trial < 200; ++trial) {
    const Layout layout = AnyLayout(5);
    for (const LocalSlab& local : layout.local_slabs()) {
      for (size_t p = 0; p < local.slab.params.size(); ++p) {
        const std::vector<int64_t> numbers = NumbersOf(local, p, registry_);
        const int count = static_cast<int>(numbers.size());
        ASSERT_EQ(local.slab.params[p].elements, count);
        const int begin = Between(0, count);
        const Range range{begin, Between(begin, count)};
        int64_t at = range.begin;
        ForEachLogicalRun(
            local, p, registry_, range, [&](Range run, int64_t first) {
              ASSERT_EQ(run.begin, at);
              ASSERT_GT(run.size(), 0);
              for (; at < run.end; ++at) {
                ASSERT_EQ(At(numbers, at), first + at - run.begin);
              }
            });
        ASSERT_EQ(at, range.end);
      }
    }
  }
}

// So an update is as many calls as there are parameters.
TEST_F(CutStoreTest, OverDataRanksAParameterIsOneRun) {
  for (int trial = 0; trial < 100; ++trial) {
    const Layout layout = AnyLayout(1);
    const auto store = Store(layout, Between(0, layout.ranks() - 1));
    for (size_t s = 0; s < store->slabs().size(); ++s) {
      const int slab = static_cast<int>(s);
      for (size_t p = 0; p < store->slabs()[s].params.size(); ++p) {
        const Range held = store->state(slab, 0, p).held;
        int runs = 0;
        ForEachLogicalRun(store->local(slab), p, registry_, held,
                          [&](Range run, int64_t first) {
                            EXPECT_EQ(run, held);
                            EXPECT_EQ(first, held.begin);
                            ++runs;
                          });
        ASSERT_EQ(runs, held.size() > 0 ? 1 : 0);
      }
    }
  }
}

// Held state is of what is here, not of the parameter's shape.
TEST_F(CutStoreTest, StateIsOfWhatIsHere) {
  for (int trial = 0; trial < 200; ++trial) {
    const Layout layout = AnyLayout(5);
    const auto store = Store(layout, Between(0, layout.ranks() - 1));
    for (size_t s = 0; s < store->slabs().size(); ++s) {
      const int slab = static_cast<int>(s);
      const Range held = store->held(slab, Plane::kState0);
      for (size_t p = 0; p < store->slabs()[s].params.size(); ++p) {
        const SlabParam& param = store->slabs()[s].params[p];
        const int64_t begin =
            std::clamp<int64_t>(held.begin - param.offset, 0, param.elements);
        const int64_t end =
            std::clamp<int64_t>(held.end - param.offset, begin, param.elements);
        const Range state = store->state(slab, 1, p).held;
        ASSERT_EQ(state.size(), end - begin);
        if (state.size() > 0) {
          ASSERT_EQ(state.begin, begin);
        }
      }
    }
  }
}

TEST_F(CutStoreTest, FactoredStatisticsOfACutMatrixAreRefused) {
  const Layout layout =
      Layout::Create(registry_, kBlocks, {}, {.mesh = {.tensor = 2}});
  EXPECT_DEATH(static_cast<void>(ParamStore::Create(
                   *device_, layout, 0, {.states = testing::FactoredStates()})),
               "its statistics are of whole rows");
}

TEST_F(CutStoreTest, CountsParametersOfTheModel) {
  const Layout layout = Layout::Create(
      registry_, kBlocks, testing::ShareAll(kBlocks, {"attention", "mlp"}),
      {.mesh = {.tensor = 3, .pipeline = 2}});
  const auto store = Store(layout, 4);
  constexpr int64_t kBlock = 7 + 13 * 7 + 7 * 11 + 124 * 7 + 5 * 3 * 70 + 15;
  EXPECT_EQ(store->unique_parameters(), 29 * 7 + kBlock + 7);
  EXPECT_EQ(store->virtual_parameters(), 29 * 7 + kBlocks * kBlock + 7);
}

}  // namespace
}  // namespace delink::cut_store_test
