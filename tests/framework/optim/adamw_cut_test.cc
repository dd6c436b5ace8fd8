// AdamW over stores that tensor parallelism cuts: what is rounded by a value's
// number has the bits of the whole store.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "framework/base/at.h"
#include "framework/optim/adamw.h"
#include "framework/tensor/bfloat16.h"
#include "tests/framework/module/toy_model.h"

namespace delink::adamw_cut_test {
namespace {

using testing::Read;

constexpr int kUpdates = 3;

class AdamWCutTest : public ::testing::Test {
 protected:
  void Declare(int64_t columns) {
    const Scope mlp = Scope(registry_).Layer(1, "blocks/0").Part("mlp");
    mlp.Param("up", {.shape = {18, 24},
                     .init = Init::Normal(1),
                     .split = Split::kOut,
                     .stacked = {12, 6}});
    mlp.Param(
        "down",
        {.shape = {5, columns}, .init = Init::Normal(1), .split = Split::kIn});
    mlp.Param("norm", {.shape = {7}, .init = Init::Ones(), .decay = false});
  }

  // Calls visit(slab, element, logical slab's element) for what a store has.
  template <typename Visit>
  static void ForEachValue(const ParamStore& store, Visit visit) {
    for (size_t s = 0; s < store.slabs().size(); ++s) {
      const int slab = static_cast<int>(s);
      const LocalSlab& local = store.local(slab);
      const Slab& logical = At(store.layout().slabs(), local.logical);
      for (size_t p = 0; p < local.slab.params.size(); ++p) {
        const int64_t first = logical.params[local.params[p]].offset;
        int64_t at = local.slab.params[p].offset;
        for (const int64_t number :
             testing::NumbersOf(local, p, store.registry())) {
          visit(slab, at++, first + number);
        }
      }
    }
  }

  // After some updates by gradients that are functions of the value's number.
  std::unique_ptr<ParamStore> Updated(StateStorage moments, const Mesh& mesh,
                                      int rank, int zero = 0,
                                      MasterForm master = MasterForm::kNone) {
    const auto adamw = NewAdamW({.moments = moments});
    auto created = ParamStore::Create(
        *device_,
        Layout::Create(registry_, 1, {}, {.mesh = mesh, .zero = zero}), rank,
        {.dtype = DType::kBF16, .states = adamw->states(), .master = master});
    DELINK_CHECK(created.ok()) << created.status().ToString();
    std::unique_ptr<ParamStore> store = *std::move(created);
    store->InitWeights(3);
    for (int update = 1; update <= kUpdates; ++update) {
      const RngKey key = Fold(KeyFromSeed(8), static_cast<uint64_t>(update));
      ForEachValue(*store, [&](int slab, int64_t element, int64_t number) {
        *static_cast<float*>(store->at(slab, Plane::kGradient, element)) =
            static_cast<float>(Normal(key, static_cast<uint64_t>(number)));
      });
      for (size_t s = 0; s < store->slabs().size(); ++s) {
        adamw->Update(*stream_, *store, static_cast<int>(s), &control_, update);
      }
    }
    return store;
  }

  // Of 8 bits, with whole masters: the codes of two ranks are those of one.
  void ExpectSameMoments() {
    const auto whole =
        Updated(StateStorage::kBlock8, {}, 0, 0, MasterForm::kWhole);
    for (int rank = 0; rank < 2; ++rank) {
      const auto cut = Updated(StateStorage::kBlock8, {.tensor = 2}, rank, 0,
                               MasterForm::kWhole);
      ForEachValue(*cut, [&](int slab, int64_t element, int64_t number) {
        for (const Plane plane : {Plane::kState0, Plane::kState1}) {
          ASSERT_EQ(*static_cast<const uint8_t*>(cut->at(slab, plane, element)),
                    *static_cast<const uint8_t*>(whole->at(0, plane, number)));
        }
        ASSERT_EQ(
            *static_cast<const float*>(cut->at(slab, Plane::kMaster, element)),
            *static_cast<const float*>(whole->at(0, Plane::kMaster, number)));
      });
    }
  }

  // Weights of a piece: of data ranks that have all of its state, and of those
  // that have shards. Calls visit(weight, logical slab's element).
  template <typename Visit>
  void ExpectSameShards(StateStorage moments, Visit visit) {
    for (int rank = 0; rank < 4; ++rank) {
      const Mesh mesh{.tensor = 2, .data = 2};
      const auto whole = Updated(moments, mesh, rank);
      const auto shard = Updated(moments, mesh, rank, /*zero=*/1);
      ForEachValue(*shard, [&](int slab, int64_t element, int64_t number) {
        const Range held = shard->held(slab, Plane::kState0);
        if (element < held.begin || element >= held.end) return;
        const auto* const w = static_cast<const BFloat16*>(
            whole->at(slab, Plane::kWeight, element));
        ASSERT_EQ(w->bits, static_cast<const BFloat16*>(
                               shard->at(slab, Plane::kWeight, element))
                               ->bits);
        visit(float{*w}, number);
      });
    }
  }

  const UpdateControl control_{.lr = 0.01, .clip_factor = 0.5};
  std::unique_ptr<Device> device_ = NewCpuDevice();
  std::unique_ptr<Stream> stream_ = device_->NewStream();
  ParamRegistry registry_;
};

// A cut between values of one draw: other draws, the same on all ranks that
// have a piece, whole or in shards, and as good ones.
TEST_F(AdamWCutTest, PiecesOfOtherSizesAreRoundedByTheirOwnNumbers) {
  Declare(12);
  const auto exact = Updated(StateStorage::kBF16, {}, 0);
  const auto weights = Read<BFloat16>(*exact, 0, Plane::kWeight);
  int64_t compared = 0, moved = 0;
  ExpectSameShards(StateStorage::kBF16, [&](float w, int64_t number) {
    const float before = At(weights, number);
    EXPECT_NEAR(w, before, 0x1p-6 * (1 + std::abs(before)));
    ++compared;
    moved += w != before ? 1 : 0;
  });
  EXPECT_GE(compared, 18 * 24 + 5 * 12 + 7);
  EXPECT_GT(moved, 0);
}

// Blocks of 8 bits are those of a piece, whatever rows they go over: a step is
// that of exact moments but for their rounding.
TEST_F(AdamWCutTest, BlocksAreThoseOfThePiece) {
  Declare(48);
  const auto exact = Updated(StateStorage::kExact, {}, 0);
  const auto weights = Read<BFloat16>(*exact, 0, Plane::kWeight);
  for (int rank = 0; rank < 2; ++rank) {
    const auto cut = Updated(StateStorage::kBlock8, {.tensor = 2}, rank);
    ForEachValue(*cut, [&](int slab, int64_t element, int64_t number) {
      const float w =
          *static_cast<const BFloat16*>(cut->at(slab, Plane::kWeight, element));
      const float expected = At(weights, number);
      EXPECT_NEAR(w, expected, 0x1p-6 * (1 + std::abs(expected)));
    });
  }
}

// A shard that is in one of several rectangles has the draws of the piece.
TEST_F(AdamWCutTest, ShardsOfBlocksAreRoundedAsThePieceIs) {
  Scope(registry_)
      .Layer(1, "blocks/0")
      .Param("up", {.shape = {32, 256},
                    .init = Init::Normal(1),
                    .split = Split::kOut,
                    .stacked = {16, 16}});
  int64_t compared = 0;
  ExpectSameShards(StateStorage::kBlock8, [&](float, int64_t) { ++compared; });
  EXPECT_EQ(compared, 32 * 256);
}

// Two pieces of whole blocks have the bits of the whole.
TEST_F(AdamWCutTest, BlocksThatAreNotCutHaveTheBitsOfTheWhole) {
  const Scope mlp = Scope(registry_).Layer(1, "blocks/0").Part("mlp");
  mlp.Param("up", {.shape = {8, 256},
                   .init = Init::Normal(1),
                   .split = Split::kOut,
                   .stacked = {4, 4}});
  mlp.Param("down",
            {.shape = {5, 512}, .init = Init::Normal(1), .split = Split::kIn});
  ASSERT_NO_FATAL_FAILURE(ExpectSameMoments());
}

}  // namespace
}  // namespace delink::adamw_cut_test
