// Stores of a few ranks of layouts that cut parameters: what is made by a
// value's number is so by its number in the whole parameter.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "framework/base/at.h"
#include "framework/module/binder.h"
#include "framework/module/param_store.h"
#include "framework/tensor/bfloat16.h"
#include "tests/framework/module/random_layouts.h"
#include "tests/framework/module/toy_model.h"

namespace delink::cut_store_test {
namespace {

using testing::Declare;
using testing::Dice;
using testing::Model;
using testing::NumbersOf;
using testing::Read;

class CutStoreTest : public ::testing::Test {
 protected:
  // Of a new model.
  Layout AnyLayout(bool tensor = true) {
    model_ = std::make_unique<Model>();
    Declare(*model_, dice_, /*widest=*/60);
    for (ParamDecl& decl : model_->registry.decls) {
      decl.spec.init = Init::Normal(1);
    }
    return testing::AnyLayout(*model_, dice_, /*ranks=*/45, tensor);
  }

  std::unique_ptr<ParamStore> Store(const Layout& layout, int rank,
                                    DType dtype = DType::kF32) {
    auto store = ParamStore::Create(
        *device_, layout, rank,
        {.dtype = dtype, .states = testing::MomentsIn(StateStorage::kBF16)});
    DELINK_CHECK(store.ok()) << store.status().ToString();
    return *std::move(store);
  }

  // All of the model on one rank, each logical slab as one.
  std::unique_ptr<ParamStore> Whole(const SharingMap& sharing) {
    std::vector<ParamDecl>& decls = model_->registry.decls;
    std::vector<bool> exact;
    for (ParamDecl& decl : decls) {
      exact.push_back(std::exchange(decl.spec.exact, false));
    }
    auto store =
        Store(Layout::Create(model_->registry, model_->blocks, sharing, {}), 0);
    for (size_t i = 0; i < decls.size(); ++i) decls[i].spec.exact = exact[i];
    return store;
  }

  Dice dice_{17};
  std::unique_ptr<Device> device_ = NewCpuDevice();
  std::unique_ptr<Model> model_;
};

// The parameters themselves, and bf16 weights, which are those rounded.
TEST_F(CutStoreTest, InitialValuesAreThoseOfTheWholeStore) {
  int64_t compared = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const Layout layout = AnyLayout();
    const auto whole = Whole(layout.sharing());
    whole->InitWeights(9);
    const int rank = dice_.Between(0, layout.ranks() - 1);
    const auto store = Store(layout, rank, DType::kBF16);
    store->InitWeights(9);
    for (size_t s = 0; s < store->slabs().size(); ++s) {
      const int slab = static_cast<int>(s);
      const LocalSlab& local = store->local(slab);
      const Slab& logical = At(layout.slabs(), local.logical);
      const auto all = Read<float>(*whole, local.logical, Plane::kWeight);
      const bool exact = local.slab.exact;
      const auto weights = exact ? std::vector<BFloat16>()
                                 : Read<BFloat16>(*store, slab, Plane::kWeight);
      const auto masters = Read<float>(*store, slab, store->master(slab));
      const Range held = store->held(slab, store->master(slab));
      const Range rounded = store->held(slab, Plane::kWeight);
      for (size_t p = 0; p < local.slab.params.size(); ++p) {
        const int64_t first = logical.params[local.params[p]].offset;
        int64_t at = local.slab.params[p].offset;
        for (const int64_t number : NumbersOf(local, p, model_->registry)) {
          const float value = At(all, first + number);
          if (!exact && at >= rounded.begin && at < rounded.end) {
            ASSERT_EQ(At(weights, at - rounded.begin).bits,
                      BFloat16(value).bits)
                << local.slab.name << " on rank " << rank << ", trial "
                << trial;
          }
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
    const Layout layout = AnyLayout();
    for (const LocalSlab& local : layout.local_slabs()) {
      for (size_t p = 0; p < local.slab.params.size(); ++p) {
        const std::vector<int64_t> numbers =
            NumbersOf(local, p, model_->registry);
        const int count = static_cast<int>(numbers.size());
        ASSERT_EQ(local.slab.params[p].elements, count);
        const int begin = dice_.Between(0, count);
        const Range range{begin, dice_.Between(begin, count)};
        int64_t at = range.begin;
        ForEachLogicalRun(
            local, p, model_->registry, range, [&](Range run, int64_t first) {
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
    const Layout layout = AnyLayout(/*tensor=*/false);
    const auto store = Store(layout, dice_.Between(0, layout.ranks() - 1));
    for (size_t s = 0; s < store->slabs().size(); ++s) {
      const int slab = static_cast<int>(s);
      for (size_t p = 0; p < store->slabs()[s].params.size(); ++p) {
        const Range held = store->state(slab, 0, p).held;
        int runs = 0;
        ForEachLogicalRun(store->local(slab), p, model_->registry, held,
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
    const Layout layout = AnyLayout();
    const auto store = Store(layout, dice_.Between(0, layout.ranks() - 1));
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

// Layers see what is here of several matrices, or vectors, as such.
TEST_F(CutStoreTest, LayersSeeEachOfSeveralMatrices) {
  ParamRegistry registry;
  const Scope block = Scope(registry).Layer(1, "blocks/0");
  const Param& up = block.Param(
      "up", {.shape = {3, 8, 5}, .split = Split::kOut, .stacked = {6, 2}});
  const Param& bias = block.Param("bias", {.shape = {3, 8},
                                           .vectors = true,
                                           .split = Split::kOut,
                                           .stacked = {6, 2}});
  const Param& down =
      block.Param("down", {.shape = {3, 5, 8}, .split = Split::kIn});
  const Param& mix = block.Param("mix", {.shape = {3, 2, 2}});
  const Layout layout =
      Layout::Create(registry, 1, {}, {.mesh = {.tensor = 2}});
  const auto store = Store(layout, 1);
  Binder(*store).Bind(1, nullptr);
  EXPECT_EQ(up.shape(), (Shape{3, 4, 5}));
  EXPECT_EQ(bias.shape(), (Shape{3, 4}));
  EXPECT_EQ(down.shape(), (Shape{3, 5, 4}));
  EXPECT_EQ(mix.shape(), (Shape{3, 2, 2}));
}

TEST(ParamDeathTest, HasAShapeThatIsCutAndUpdated) {
  ParamRegistry registry;
  const Scope scope(registry);
  EXPECT_DEATH(scope.Param("a", {.shape = {2, 2, 2, 2}}),
               "a has the shape \\[2, 2, 2, 2\\]");
  EXPECT_DEATH(scope.Param("a", {.shape = {2}, .vectors = true}),
               "a has the shape \\[2\\]");
}

TEST_F(CutStoreTest, CountsParametersOfTheModel) {
  const Layout layout = AnyLayout();
  const auto store = Store(layout, layout.ranks() - 1);
  const auto whole = Whole(layout.sharing());
  EXPECT_EQ(store->unique_parameters(), whole->unique_parameters());
  EXPECT_EQ(store->virtual_parameters(), whole->virtual_parameters());
}

}  // namespace
}  // namespace delink::cut_store_test
