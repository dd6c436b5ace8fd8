// Squares summed by cells over the ranks of random meshes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "framework/base/at.h"
#include "framework/module/param_store.h"
#include "framework/optim/slab_optimizer.h"
#include "tests/framework/module/random_layouts.h"
#include "tests/framework/module/toy_model.h"

namespace delink::cells_test {
namespace {

using testing::AnyLayout;
using testing::Declare;
using testing::Dice;
using testing::Model;

class CellSumsTest : public ::testing::Test {
 protected:
  // Of parameters, which their names and numbers alone decide.
  std::unique_ptr<ParamStore> Store(const Layout& layout, int rank) {
    auto store = ParamStore::Create(*device_, layout, rank, {});
    DELINK_CHECK(store.ok()) << store.status().ToString();
    (*store)->InitWeights(9);
    return *std::move(store);
  }

  // All cells, added up over the ranks; those of a rank's slabs begin with what
  // an exchange may have left.
  std::vector<double> Sums(const Layout& layout) {
    const auto stream = device_->NewStream();
    const auto count = static_cast<size_t>(layout.cells());
    std::vector<double> total(count, 0.0);
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      const auto store = Store(layout, rank);
      std::vector<double> sums(count, 0.0);
      for (int s = 0; s < static_cast<int>(store->slabs().size()); ++s) {
        double* const cells = sums.data() + store->local(s).first_cell;
        std::fill_n(cells, store->slab(s).blocks(), std::nan(""));
        SumSquares(*stream, *store, s, store->owned(s), cells, Plane::kWeight);
      }
      for (size_t i = 0; i < count; ++i) total[i] += sums[i];
    }
    return total;
  }

  std::unique_ptr<Device> device_ = NewCpuDevice();
};

TEST_F(CellSumsTest, HaveTheSameBitsForEveryOwner) {
  constexpr int kRanks = 12;
  constexpr int kWidest = 60;
  Dice dice(5);
  int cut = 0, apart = 0;
  for (int trial = 0; trial < 60; ++trial) {
    SCOPED_TRACE(trial);
    Model model;
    Declare(model, dice, kWidest);
    for (ParamDecl& decl : model.registry.decls) {
      decl.spec.init = Init::Normal(1);
    }
    const Layout any = AnyLayout(model, dice, kRanks);
    cut += any.mesh().tensor > 1 ? 1 : 0;
    apart += any.mesh().pipeline > 1 ? 1 : 0;
    const auto with = [&](int zero, WholeTensors whole) {
      Layout::Options options = any.options();
      options.zero = zero;
      options.whole_tensors = whole;
      return Layout::Create(model.registry, model.blocks, any.sharing(),
                            options);
    };
    const std::vector<double> sums = Sums(with(0, WholeTensors::kNone));
    for (const WholeTensors whole :
         {WholeTensors::kNone, WholeTensors::kHidden, WholeTensors::kAll}) {
      ASSERT_EQ(Sums(with(1, whole)), sums);
    }
    // A slab's cells have each element of it once.
    const auto one = Store(
        Layout::Create(model.registry, model.blocks, any.sharing(), {}), 0);
    for (int s = 0; s < static_cast<int>(any.slabs().size()); ++s) {
      const Range cells = any.CellsOfLogical(s);
      double sum = 0, expected = 0;
      for (int64_t i = cells.begin; i < cells.end; ++i) sum += At(sums, i);
      for (const int slab : one->LocalSlabsOf(s)) {
        for (const float x : testing::Read<float>(*one, slab, Plane::kWeight)) {
          expected += double{x} * x;
        }
      }
      ASSERT_NEAR(sum, expected, 1e-12 * expected);
    }
  }
  EXPECT_GT(cut, 10);
  EXPECT_GT(apart, 10);
}

TEST_F(CellSumsTest, NameTheLogicalSlabThatIsNotFinite) {
  Dice dice(6);
  for (int trial = 0; trial < 100; ++trial) {
    SCOPED_TRACE(trial);
    Model model;
    Declare(model, dice);
    const Layout layout = AnyLayout(model, dice);
    std::vector<double> sums(static_cast<size_t>(layout.cells()), 1.0);
    ASSERT_EQ(FirstNonFiniteSlab(layout, sums), -1);
    const LocalSlab& bad =
        At(layout.local_slabs(),
           dice.Below(static_cast<int>(layout.local_slabs().size())));
    if (bad.slab.elements == 0) continue;
    At(sums, bad.first_cell + bad.slab.blocks() - 1) = HUGE_VAL;
    ASSERT_EQ(FirstNonFiniteSlab(layout, sums), bad.logical);
  }
}

}  // namespace
}  // namespace delink::cells_test
