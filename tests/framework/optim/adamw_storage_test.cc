// AdamW over a store, however masters and moments are kept: shards have the
// bits of the whole, a split master those of an f32 one, and small moments lead
// to nearly the same place.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "framework/optim/adamw.h"
#include "framework/tensor/bfloat16.h"
#include "tests/framework/module/plain_values.h"
#include "tests/framework/module/toy_model.h"

namespace delink::adamw_storage_test {
namespace {

using testing::MakeStore;
using testing::Read;

constexpr int kBlocks = 2;
constexpr int64_t kWidth = 37;
constexpr int kUpdates = 4;

struct Way {
  DType dtype = DType::kF32;
  MasterForm master = MasterForm::kWhole;
  StateStorage moments = StateStorage::kExact;
};

std::vector<Way> AllWays() {
  std::vector<Way> ways;
  for (const StateStorage moments :
       {StateStorage::kExact, StateStorage::kBF16, StateStorage::kBlock8}) {
    ways.push_back({.moments = moments});
    for (const MasterForm master :
         {MasterForm::kWhole, MasterForm::kSplit, MasterForm::kNone}) {
      ways.push_back({DType::kBF16, master, moments});
    }
  }
  return ways;
}

class AdamWStorageTest : public ::testing::Test {
 protected:
  AdamWStorageTest() { testing::DeclareToy(registry_, kBlocks, kWidth); }

  // A store after some updates by gradients that are functions of their place.
  std::unique_ptr<ParamStore> Updated(const Way& way, int rank = 0,
                                      int ranks = 1, uint64_t seed = 1) {
    const auto adamw = NewAdamW({.moments = way.moments});
    adamw->set_seed(seed);
    auto store = MakeStore(*device_, registry_, kBlocks, {}, 1,
                           {.dtype = way.dtype,
                            .rank = rank,
                            .ranks = ranks,
                            .states = adamw->states(),
                            .whole_tensors = adamw->whole_tensors(),
                            .master = way.master});
    store->InitWeights(3);
    for (int update = 1; update <= kUpdates; ++update) {
      for (size_t s = 0; s < store->slabs().size(); ++s) {
        const int slab = static_cast<int>(s);
        const RngKey key =
            Fold(Fold(KeyFromSeed(8), s), static_cast<uint64_t>(update));
        testing::Write<float>(*store, slab, Plane::kGradient, [&](int64_t i) {
          return static_cast<float>(Normal(key, static_cast<uint64_t>(i)));
        });
        adamw->Update(*stream_, *store, slab, &control_, update);
      }
    }
    return store;
  }

  std::vector<float> Parameters(const ParamStore& store, int slab,
                                Range range) {
    std::vector<float> values(static_cast<size_t>(range.size()));
    testing::ReadParameters(store, *stream_, slab, range.begin, range.size(),
                            values.data());
    return values;
  }
  std::vector<float> State(const ParamStore& store, int slab, int state,
                           size_t param, Range range) {
    std::vector<float> values(static_cast<size_t>(range.size()));
    testing::ReadState(store, *stream_, slab, state, param, range,
                       values.data());
    return values;
  }

  // Calls visit(parameters, others) for the parameters of each slab that this
  // rank owns, and the same of `whole`.
  template <typename Visit>
  void ForEachOwned(const ParamStore& store, const ParamStore& whole,
                    Visit visit) {
    for (size_t s = 0; s < store.slabs().size(); ++s) {
      const int slab = static_cast<int>(s);
      const Range owned = store.owned(slab);
      if (owned.size() == 0) continue;
      visit(Parameters(store, slab, owned), Parameters(whole, slab, owned));
    }
  }

  const UpdateControl control_{.lr = 0.01, .clip_factor = 0.5};
  std::unique_ptr<Device> device_ = NewCpuDevice();
  std::unique_ptr<Stream> stream_ = device_->NewStream();
  ParamRegistry registry_;
};

TEST_F(AdamWStorageTest, ShardsHaveTheBitsOfTheWhole) {
  for (const Way& way : AllWays()) {
    const auto whole = Updated(way);
    for (const int ranks : {2, 5}) {
      for (int rank = 0; rank < ranks; ++rank) {
        const auto shard = Updated(way, rank, ranks);
        ForEachOwned(*shard, *whole, [](const auto& part, const auto& all) {
          ASSERT_EQ(part, all);
        });
        for (size_t s = 0; s < shard->slabs().size(); ++s) {
          const int slab = static_cast<int>(s);
          for (size_t p = 0; p < shard->slabs()[s].params.size(); ++p) {
            for (const int k : {0, 1}) {
              const Range held = shard->state(slab, k, p).held;
              ASSERT_EQ(State(*shard, slab, k, p, held),
                        State(*whole, slab, k, p, held))
                  << shard->slabs()[s].name;
            }
          }
        }
      }
    }
  }
}

// The masters are the same to the bit; the weights round them otherwise where
// they are ties, which next to none is.
TEST_F(AdamWStorageTest, ASplitMasterIsAnFp32One) {
  for (const StateStorage moments :
       {StateStorage::kExact, StateStorage::kBF16, StateStorage::kBlock8}) {
    const auto whole = Updated({DType::kBF16, MasterForm::kWhole, moments});
    const auto split = Updated({DType::kBF16, MasterForm::kSplit, moments});
    ForEachOwned(*split, *whole,
                 [](const auto& a, const auto& b) { ASSERT_EQ(a, b); });
    for (size_t s = 0; s < whole->slabs().size(); ++s) {
      const int slab = static_cast<int>(s);
      const auto a = Read<BFloat16>(*whole, slab, Plane::kWeight);
      const auto b = Read<BFloat16>(*split, slab, Plane::kWeight);
      const auto master = Read<float>(*whole, slab, Plane::kMaster);
      for (size_t i = 0; i < a.size(); ++i) {
        const bool tie =
            (std::bit_cast<uint32_t>(master[i]) & 0xFFFF) == 0x8000;
        ASSERT_TRUE(tie || a[i].bits == b[i].bits);
      }
      // Norms are those of the masters, too.
      std::vector<double> sums(static_cast<size_t>(whole->slabs()[s].blocks()));
      std::vector<double> others = sums;
      SumSquares(*stream_, *whole, slab, whole->owned(slab), sums.data(),
                 whole->master(0));
      SumSquares(*stream_, *split, slab, split->owned(slab), others.data(),
                 split->master(0));
      EXPECT_EQ(sums, others);
    }
  }
}

TEST_F(AdamWStorageTest, SmallMomentsAreClose) {
  const auto exact = Updated({});
  for (const StateStorage moments :
       {StateStorage::kBF16, StateStorage::kBlock8}) {
    const auto small = Updated({.moments = moments});
    double most = 0;
    ForEachOwned(*small, *exact, [&](const auto& a, const auto& b) {
      for (size_t i = 0; i < a.size(); ++i) {
        most = std::max<double>(most, std::abs(a[i] - b[i]));
      }
    });
    EXPECT_GT(most, 0);
    // Of kUpdates steps of at most about lr each.
    EXPECT_LT(most, moments == StateStorage::kBF16 ? 0.1 * control_.lr
                                                   : 1.0 * control_.lr);
  }
}

TEST_F(AdamWStorageTest, TheSeedDecidesHowIsRounded) {
  const Way none{DType::kBF16, MasterForm::kNone, StateStorage::kExact};
  const auto a = Updated(none), b = Updated(none, 0, 1, 2);
  size_t different = 0;
  ForEachOwned(*a, *b, [&](const auto& x, const auto& y) {
    for (size_t i = 0; i < x.size(); ++i) different += x[i] != y[i] ? 1 : 0;
  });
  EXPECT_GT(different, 100U);
}

}  // namespace
}  // namespace delink::adamw_storage_test
