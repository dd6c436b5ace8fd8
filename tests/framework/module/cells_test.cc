// Cells of random layouts: what norms are summed by.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "framework/base/at.h"
#include "framework/module/layout.h"
#include "tests/framework/module/random_layouts.h"

namespace delink::cells_test {
namespace {

using testing::AnyLayout;
using testing::Declare;
using testing::Dice;
using testing::Model;

constexpr int64_t kMostCells = 2048;
constexpr int kWidest = 3000;

// The same model over the same mesh.
Layout With(const Layout& layout, int zero, WholeTensors whole) {
  Layout::Options options = layout.options();
  options.zero = zero;
  options.whole_tensors = whole;
  return Layout::Create(layout.registry(), layout.blocks(), layout.sharing(),
                        options);
}

// The cells that a rank owns, which it owns whole.
Range OwnCells(const Layout& layout, int slab, int rank) {
  const LocalSlab& local = At(layout.local_slabs(), slab);
  const int64_t block = local.slab.block;
  const Range owned = layout.OwnedBy(slab, rank);
  if (owned.size() == 0) return {};
  EXPECT_EQ(owned.begin % block, 0) << local.slab.name;
  EXPECT_TRUE(owned.end % block == 0 || owned.end == local.slab.elements)
      << local.slab.name;
  return {local.first_cell + owned.begin / block,
          local.first_cell + (owned.end + block - 1) / block};
}

TEST(CellsTest, EachHasOneOwner) {
  Dice dice(1);
  int64_t most = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    SCOPED_TRACE(trial);
    Model model;
    Declare(model, dice, kWidest);
    const Layout layout = AnyLayout(model, dice);
    std::vector<int> owners(static_cast<size_t>(layout.cells()), 0);
    const int slabs = static_cast<int>(layout.local_slabs().size());
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      for (int slab = 0; slab < slabs; ++slab) {
        const Range own = OwnCells(layout, slab, rank);
        for (int64_t i = own.begin; i < own.end; ++i) ++At(owners, i);
      }
    }
    ASSERT_EQ(std::count(owners.begin(), owners.end(), 1), std::ssize(owners));
    int64_t next = 0;
    for (int s = 0; s < static_cast<int>(layout.slabs().size()); ++s) {
      const Range cells = layout.CellsOfLogical(s);
      ASSERT_EQ(cells.begin, next);
      ASSERT_LE(cells.size(), kMostCells);
      most = std::max(most, cells.size());
      next = cells.end;
    }
    ASSERT_EQ(next, layout.cells());
  }
  EXPECT_GT(most, kMostCells / 4) << "large slabs were among them";
}

TEST(CellsTest, AreTheSameForEveryOwner) {
  Dice dice(2);
  for (int trial = 0; trial < 2000; ++trial) {
    SCOPED_TRACE(trial);
    Model model;
    Declare(model, dice, kWidest);
    const Layout layout = AnyLayout(model, dice);
    for (const int zero : {0, 1}) {
      const auto whole = static_cast<WholeTensors>(dice.Below(3));
      const Layout other = With(layout, zero, whole);
      ASSERT_EQ(other.cells(), layout.cells());
      ASSERT_EQ(other.local_slabs().size(), layout.local_slabs().size());
      for (size_t s = 0; s < layout.local_slabs().size(); ++s) {
        const LocalSlab& a = layout.local_slabs()[s];
        const LocalSlab& b = other.local_slabs()[s];
        ASSERT_EQ(b.first_cell, a.first_cell);
        ASSERT_EQ(b.slab.block, a.slab.block);
      }
    }
  }
}

// Those of a rank's slabs and those that are not on it are all.
TEST(CellsTest, AreOnARankOrNot) {
  Dice dice(3);
  for (int trial = 0; trial < 2000; ++trial) {
    SCOPED_TRACE(trial);
    Model model;
    Declare(model, dice, kWidest);
    const Layout layout = AnyLayout(model, dice);
    const int rank = dice.Below(layout.ranks());
    std::vector<Range> ranges = layout.CellsNotOn(rank);
    for (const int s : layout.LocalSlabsOf(rank)) {
      const LocalSlab& local = At(layout.local_slabs(), s);
      if (local.slab.blocks() == 0) continue;
      ranges.push_back(
          {local.first_cell, local.first_cell + local.slab.blocks()});
    }
    std::sort(ranges.begin(), ranges.end(), [](Range a, Range b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
    });
    int64_t next = 0;
    for (const Range& range : ranges) {
      ASSERT_EQ(range.begin, next);
      next = range.end;
    }
    ASSERT_EQ(next, layout.cells());
  }
}

// Nothing of them depends on the number of data ranks.
TEST(CellsTest, OverDataRanksAreTheBlocksOfSlabs) {
  Dice dice(4);
  for (int trial = 0; trial < 200; ++trial) {
    SCOPED_TRACE(trial);
    Model model;
    Declare(model, dice, kWidest);
    const Layout layout = Layout::Create(
        model.registry, model.blocks, testing::AnySharing(model, dice),
        {.mesh = {.data = dice.Between(1, 9)}, .zero = 1});
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      ASSERT_TRUE(layout.CellsNotOn(rank).empty());
    }
    int64_t next = 0;
    for (size_t s = 0; s < layout.slabs().size(); ++s) {
      const Slab& slab = layout.slabs()[s];
      ASSERT_EQ(layout.local_slabs()[s].slab.block, slab.block);
      next += slab.blocks();
      ASSERT_EQ(layout.CellsOfLogical(static_cast<int>(s)).end, next);
    }
  }
}

}  // namespace
}  // namespace delink::cells_test
