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

}  // namespace
}  // namespace delink::cells_test
