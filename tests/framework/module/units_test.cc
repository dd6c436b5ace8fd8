// Parameters that are cut at heads: rows of keys and values, of which there may
// be fewer than ranks, and what heads are normalised by.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/at.h"
#include "framework/module/binder.h"
#include "framework/module/can_cut.h"
#include "framework/module/layout.h"
#include "tests/framework/module/random_layouts.h"
#include "tests/framework/module/toy_model.h"

namespace delink::units_test {
namespace {

using testing::Dice;
using testing::Model;
using testing::Read;

constexpr int kDim = 4;      // of the model
constexpr int kHeadDim = 3;  // rows of a head

float ValueAt(const Tensor& tensor, int64_t i) {
  return static_cast<const float*>(tensor.data())[i];
}

class UnitsTest : public ::testing::Test {
 protected:
  void DeclareAttention(int heads, int kv_heads) {
    const std::vector<int64_t> rows = {heads * kHeadDim, kv_heads * kHeadDim,
                                       kv_heads * kHeadDim};
    const Scope part = Scope(registry_).Layer(1, "blocks/0").Part("attention");
    part.Param("norm", {.shape = {kDim}, .init = Init::Normal(1)});
    part.Param("q_norm",
               {.shape = {kHeadDim}, .init = Init::Normal(1), .by_head = true});
    part.Param("bias", {.shape = {kDim}, .init = Init::Normal(1)});
    part.Param("qkv", {.shape = {rows[0] + 2 * rows[1], kDim},
                       .init = Init::Normal(1),
                       .split = Split::kOut,
                       .stacked = rows,
                       .unit = kHeadDim});
  }
  Layout LayoutOver(const Mesh& mesh, bool sequence = true) {
    return Layout::Create(registry_, 1, {},
                          {.mesh = mesh, .sequence = sequence});
  }
  std::unique_ptr<ParamStore> Store(const Layout& layout, int rank) {
    auto store = ParamStore::Create(*device_, layout, rank, {.states = {}});
    DELINK_CHECK(store.ok()) << store.status().ToString();
    (*store)->InitWeights(7);
    return *std::move(store);
  }

  std::unique_ptr<Device> device_ = NewCpuDevice();
  ParamRegistry registry_;
};

TEST_F(UnitsTest, RowsOfFewerHeadsThanRanksAreSharedByTheirReaders) {
  DeclareAttention(4, 2);
  const Layout layout = LayoutOver({.tensor = 4, .data = 2});
  // What all have, each head of keys and values, and each place's queries.
  ASSERT_EQ(layout.program_slabs().size(), 3u);
  ASSERT_EQ(layout.local_slabs().size(), 7u);
  const LocalSlab& second = layout.local_slabs()[2];
  EXPECT_EQ(second.slab.name, "blocks/0/attention.unit1");
  EXPECT_EQ(*second.group, (std::vector<int>{2, 3, 6, 7}));
  EXPECT_EQ(second.params, std::vector<size_t>{3});
  // The second head of keys, rows 12 to 17, and of values, 18 to 23.
  const std::vector<Rect> rows = {{15, 3, 0, kDim}, {21, 3, 0, kDim}};
  EXPECT_EQ(second.rects[0], rows);
  const LocalSlab& last = layout.local_slabs()[6];
  EXPECT_EQ(last.slab.name, "blocks/0/attention.cut");
  EXPECT_EQ(*last.group, (std::vector<int>{3, 7}));
  EXPECT_EQ(last.rects[0], (std::vector<Rect>{{9, 3, 0, kDim}}));
  EXPECT_EQ(layout.LocalSlabsOf(7), (std::vector<int>{0, 2, 6}));
}

// One head is what all have, beside the norms.
TEST_F(UnitsTest, OneHeadOfKeysIsOnAllRanks) {
  DeclareAttention(4, 1);
  const Layout layout = LayoutOver({.tensor = 2});
  ASSERT_EQ(layout.local_slabs().size(), 3u);
  const LocalSlab& all = layout.local_slabs()[0];
  EXPECT_EQ(*all.group, (std::vector<int>{0, 1}));
  EXPECT_EQ(all.params, (std::vector<size_t>{0, 1, 2, 3}));
  EXPECT_EQ(all.slab.params[3].elements, 2 * kHeadDim * kDim);
}

TEST_F(UnitsTest, AsManyHeadsAsRanksAreCutBetweenTwo) {
  DeclareAttention(8, 4);
  const Layout layout = LayoutOver({.tensor = 2});
  ASSERT_EQ(layout.local_slabs().size(), 3u);
  const std::vector<Rect> rows = {
      {12, 12, 0, kDim}, {30, 6, 0, kDim}, {42, 6, 0, kDim}};
  EXPECT_EQ(layout.local_slabs()[2].rects[0], rows);
}

// A gradient of what all have is whole on all of them without sequence, but of
// what each uses for its own heads, or its own queries.
TEST_F(UnitsTest, TellsWhichGradientsAreIdentical) {
  DeclareAttention(4, 1);
  const Layout layout = LayoutOver({.tensor = 2}, false);
  const std::vector<SlabParam>& params = layout.local_slabs()[0].slab.params;
  const std::vector<Range> expected = {
      {params[0].offset, params[0].offset + kDim},
      {params[2].offset, params[2].offset + kDim}};
  EXPECT_EQ(layout.IdenticalOverTensor(0), expected);
  EXPECT_TRUE(layout.IdenticalOverTensor(1).empty());
  EXPECT_TRUE(LayoutOver({.tensor = 2}).IdenticalOverTensor(0).empty());
  EXPECT_TRUE(LayoutOver({.data = 2}, false).IdenticalOverTensor(0).empty());
}

TEST_F(UnitsTest, HeadsThatDoNotDivideAreRefused) {
  DeclareAttention(4, 2);
  EXPECT_DEATH(LayoutOver({.tensor = 3}), "4 units over 3 ranks");
}

// Of each logical slab a rank has one local slab for each program slab, and the
// pieces together are the slab: of each element as many as there are places
// that have it.
TEST(ProgramSlabsTest, AreTheSameOnEveryPlace) {
  Dice dice(21);
  int64_t shared = 0;
  for (int trial = 0; trial < 1000; ++trial) {
    SCOPED_TRACE(trial);
    Model model;
    testing::Declare(model, dice);
    const Layout layout = testing::AnyLayout(model, dice, 40);
    const int kinds = static_cast<int>(layout.program_slabs().size());
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      std::vector<int> locals;
      for (int kind = 0; kind < kinds; ++kind) {
        const int local = layout.LocalSlabOf(kind, rank);
        const LocalSlab& slab = At(layout.local_slabs(), local);
        ASSERT_EQ(slab.program_slab, kind);
        ASSERT_EQ(slab.logical, At(layout.program_slabs(), kind).logical);
        shared += slab.slab.name.find(".unit") != std::string::npos ? 1 : 0;
        const std::vector<int>& group = *slab.group;
        if (std::find(group.begin(), group.end(), rank) != group.end()) {
          locals.push_back(local);
        }
      }
      ASSERT_EQ(locals, layout.LocalSlabsOf(rank));
    }
    for (size_t kind = 1; kind < layout.program_slabs().size(); ++kind) {
      const ProgramSlab& before = layout.program_slabs()[kind - 1];
      ASSERT_EQ(layout.program_slabs()[kind].first,
                before.first + before.cut.pieces);
      ASSERT_EQ(layout.mesh().along(before.cut.axis) % before.cut.pieces, 0);
    }
  }
  EXPECT_GT(shared, 1000);
}

// All rows of a parameter on a rank, those behind included, and where each is.
TEST_F(UnitsTest, BindsTheRowsBehind) {
  DeclareAttention(4, 2);
  Param& qkv = *registry_.decls[3].param;
  const auto whole = Store(LayoutOver({}), 0);
  const std::vector<float> values = Read<float>(*whole, 0, Plane::kWeight);
  const int64_t first = whole->slab(0).params[3].offset;
  const Layout layout = LayoutOver({.tensor = 4});
  for (int rank = 0; rank < 4; ++rank) {
    SCOPED_TRACE(rank);
    const auto store = Store(layout, rank);
    Binder binder(*store);
    const std::vector<bool> written = {false, true, false};
    binder.Bind(1, &written);
    ASSERT_NE(qkv.rest(), nullptr);
    EXPECT_EQ(qkv.shape(), (Shape{kHeadDim, kDim}));
    EXPECT_EQ(qkv.rest()->shape(), (Shape{2 * kHeadDim, kDim}));
    EXPECT_FALSE(qkv.written());
    EXPECT_TRUE(qkv.rest()->written()) << "as its own slab is";
    const int64_t rows[] = {rank * kHeadDim, (4 + rank / 2) * kHeadDim,
                            (6 + rank / 2) * kHeadDim};
    for (int64_t r = 0; r < 3 * kHeadDim; ++r) {
      const Param& here = r < kHeadDim ? qkv : *qkv.rest();
      const int64_t row = r < kHeadDim ? r : r - kHeadDim;
      for (int64_t c = 0; c < kDim; ++c) {
        const int64_t number = (rows[r / kHeadDim] + r % kHeadDim) * kDim + c;
        EXPECT_EQ(ValueAt(here.weight(), row * kDim + c),
                  At(values, first + number));
      }
    }
  }
  // The same parameter of a store that has all of it in one place.
  Binder binder(*whole);
  binder.Bind(1, nullptr);
  EXPECT_EQ(qkv.rest(), nullptr);
}

// Each of several matrices is cut between its own heads.
TEST_F(UnitsTest, BindsTheRowsBehindOfEachMatrix) {
  constexpr int64_t kQueries = 4 * kHeadDim, kRows = 6 * kHeadDim;
  Param& bank = Scope(registry_)
                    .Layer(1, "blocks/0")
                    .Param("bank", {.shape = {2, kRows, kDim},
                                    .init = Init::Normal(1),
                                    .split = Split::kOut,
                                    .stacked = {kQueries, 2 * kHeadDim},
                                    .unit = kHeadDim});
  const auto whole = Store(LayoutOver({}), 0);
  const std::vector<float> all = Read<float>(*whole, 0, Plane::kWeight);
  const auto store = Store(LayoutOver({.tensor = 4}), 3);
  Binder(*store).Bind(1, nullptr);
  ASSERT_NE(bank.rest(), nullptr);
  for (const auto& [part, first] : {std::pair{&bank, int64_t{3 * kHeadDim}},
                                    {bank.rest(), kQueries + kHeadDim}}) {
    EXPECT_EQ(part->shape(), (Shape{2, kHeadDim, kDim}));
    for (int64_t e = 0; e < 2; ++e) {
      for (int64_t i = 0; i < kHeadDim * kDim; ++i) {
        EXPECT_EQ(ValueAt(part->weight(), e * kHeadDim * kDim + i),
                  At(all, (e * kRows + first) * kDim + i));
      }
    }
  }
}

TEST_F(UnitsTest, HeadsOfEachMatrixThatDoNotDivideAreRefused) {
  Scope(registry_)
      .Layer(1, "blocks/0")
      .Param("bank", {.shape = {2, 6, kDim}, .split = Split::kOut, .unit = 2});
  EXPECT_EQ(CannotBeCut(registry_, 2), &registry_.decls[0]);
  EXPECT_EQ(CannotBeCut(registry_, 3), nullptr);
}

TEST_F(UnitsTest, GradientsOfRowsBehindThatNobodyWroteAreZero) {
  DeclareAttention(4, 2);
  Param& qkv = *registry_.decls[3].param;
  const auto store = Store(LayoutOver({.tensor = 4}), 1);
  for (int slab = 0; slab < 3; ++slab) {
    testing::Write<float>(*store, slab, Plane::kGradient,
                          [](int64_t) { return 5.0F; });
  }
  Binder binder(*store);
  std::vector<bool> written(3, false);
  binder.Bind(1, &written);
  qkv.TakeGrad();
  const auto stream = device_->NewStream();
  binder.FinishGradients(1, *stream);
  stream->Synchronize();
  EXPECT_EQ(ValueAt(qkv.grad(), 0), 5);
  EXPECT_EQ(ValueAt(qkv.rest()->grad(), 0), 0);
  written = {false, true, false};
  testing::Write<float>(*store, 1, Plane::kGradient,
                        [](int64_t) { return 6.0F; });
  binder.Bind(1, &written);
  binder.FinishGradients(1, *stream);
  stream->Synchronize();
  EXPECT_EQ(ValueAt(qkv.grad(), 0), 0);
  EXPECT_EQ(ValueAt(qkv.rest()->grad(), 0), 6);
}

TEST_F(UnitsTest, HeadsAreCutOverAsManyRanksAsEachHaveSome) {
  DeclareAttention(4, 2);
  for (const int64_t ranks : {1, 2, 4}) {
    EXPECT_EQ(CannotBeCut(registry_, ranks), nullptr) << ranks;
  }
  ASSERT_NE(CannotBeCut(registry_, 3), nullptr);
  EXPECT_EQ(CannotBeCut(registry_, 3)->name, "blocks/0/qkv");
  EXPECT_EQ(CannotBeCut(registry_, 8), nullptr);
  // Several ranks may have the same head's rows; of a sum each has its own.
  Scope(registry_)
      .Layer(1, "blocks/0")
      .Part("attention")
      .Param("out", {.shape = {kDim, 4 * kHeadDim},
                     .init = Init::Normal(1),
                     .split = Split::kIn,
                     .unit = kHeadDim});
  EXPECT_EQ(CannotBeCut(registry_, 4), nullptr);
  ASSERT_NE(CannotBeCut(registry_, 8), nullptr);
  EXPECT_EQ(CannotBeCut(registry_, 8)->name, "blocks/0/out");
}

}  // namespace
}  // namespace delink::units_test
