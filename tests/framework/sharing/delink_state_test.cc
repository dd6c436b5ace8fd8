// Delinking state in all its forms: copied bit for bit, scaled by its degree,
// and brought to whoever is to hold it.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "framework/base/at.h"
#include "framework/base/rng.h"
#include "framework/base/status_macros.h"
#include "framework/comm/self_communicator.h"
#include "framework/comm/thread_communicator.h"
#include "framework/sharing/delink.h"
#include "framework/sharing/resolve.h"
#include "tests/framework/module/plain_values.h"
#include "tests/framework/module/toy_model.h"

namespace delink::delink_state_test {
namespace {

using testing::FactoredStates;
using testing::kStorages;
using testing::MakeStore;
using testing::MomentsIn;
using testing::SlabNamed;

constexpr int kBlocks = 6;
constexpr int64_t kWidth = 37;

// In bf16 those of all matrices.
std::vector<StateSpec> Moments(StateStorage storage) {
  std::vector<StateSpec> specs = MomentsIn(storage);
  for (StateSpec& spec : specs) {
    if (storage == StateStorage::kBF16) spec.outer.storage = storage;
  }
  return specs;
}

// Adafactor's, with a momentum.
std::vector<StateSpec> Factored() {
  std::vector<StateSpec> specs = FactoredStates();
  specs.insert(specs.begin(), {.name = "momentum"});
  return specs;
}

// Calls visit(slab, state, param, values) for what a store holds.
template <typename Visit>
void ForEachHeld(const ParamStore& store, Visit visit) {
  const auto stream = store.device().NewStream();
  for (size_t s = 0; s < store.slabs().size(); ++s) {
    for (size_t k = 0; k < store.states().size(); ++k) {
      for (size_t p = 0; p < store.slabs()[s].params.size(); ++p) {
        const int slab = static_cast<int>(s), state = static_cast<int>(k);
        const Range held = store.state(slab, state, p).held;
        std::vector<float> values(static_cast<size_t>(held.size()));
        testing::ReadState(store, *stream, slab, state, p, held, values.data());
        visit(slab, state, p, held, values);
      }
    }
  }
}

// State that tells slabs, states, parameters and elements apart.
void Fill(ParamStore& store) {
  const auto stream = store.device().NewStream();
  ForEachHeld(store, [&](int slab, int state, size_t param, Range held,
                         std::vector<float> values) {
    const RngKey key = Fold(Fold(KeyFromSeed(7), static_cast<uint64_t>(slab)),
                            static_cast<uint64_t>(state) * 100 + param);
    for (int64_t i = held.begin; i < held.end; ++i) {
      const double x = Normal(key, static_cast<uint64_t>(i)) *
                       std::exp(static_cast<double>(i % 5));
      At(values, i - held.begin) =
          static_cast<float>(At(store.states(), state).degree == 2 ? x * x : x);
    }
    testing::WriteState(store, *stream, slab, state, param, held,
                        values.data());
  });
  for (size_t s = 0; s < store.slabs().size(); ++s) {
    store.updates()[s] = 100 + static_cast<int64_t>(s);
  }
}

std::vector<float> ValuesOf(const ParamStore& store, const std::string& slab,
                            int state, size_t param) {
  const int number = SlabNamed(store, slab);
  const Range held = store.state(number, state, param).held;
  std::vector<float> values(static_cast<size_t>(held.size()));
  const auto stream = store.device().NewStream();
  testing::ReadState(store, *stream, number, state, param, held, values.data());
  return values;
}

class DelinkStateTest : public ::testing::Test {
 protected:
  DelinkStateTest() { testing::DeclareToy(registry_, kBlocks, kWidth); }

  SharingMap Map(const std::string& text) const {
    return ResolveSharing(*ParseShareSpec(text), registry_, kBlocks).value();
  }
  std::unique_ptr<ParamStore> Store(const std::string& share,
                                    const std::vector<StateSpec>& states) {
    return MakeStore(*device_, registry_, kBlocks, Map(share), 0,
                     {.states = states});
  }
  std::unique_ptr<ParamStore> Delinked(const ParamStore& from,
                                       const std::string& share,
                                       StatePolicy policy) {
    auto to = Store(share, from.states());
    Fill(*to);  // which is overwritten
    SelfCommunicator self;
    const absl::Status status = Delink(from, *to, policy, self);
    DELINK_CHECK(status.ok()) << status.ToString();
    return to;
  }

  // What shared nothing is as it was, whatever the policy.
  static void ExpectSameEmbedding(const ParamStore& from,
                                  const ParamStore& to) {
    const char* const name = "embed/embedding";
    for (const int state : {0, 1}) {
      EXPECT_EQ(ValuesOf(from, name, state, 0), ValuesOf(to, name, state, 0));
    }
    EXPECT_EQ(At(from.updates(), SlabNamed(from, name)),
              At(to.updates(), SlabNamed(to, name)));
  }

  std::unique_ptr<Device> device_ = NewCpuDevice();
  ParamRegistry registry_;
};

TEST_F(DelinkStateTest, CopiesBitForBit) {
  for (const StateStorage storage : kStorages) {
    const auto from = Store("all", Moments(storage));
    Fill(*from);
    const auto to = Delinked(*from, "none", StatePolicy::kCopy);
    for (const int state : {0, 1}) {
      const Plane plane = StatePlane(state);
      const int old = SlabNamed(*from, "blocks/0/mlp");
      const int slab = SlabNamed(*to, "blocks/4/mlp");
      const auto* const a =
          static_cast<const char*>(from->state(old, state, 0).values);
      const auto* const b =
          static_cast<const char*>(to->state(slab, state, 0).values);
      EXPECT_EQ(std::vector<char>(a, a + from->bytes(old, plane)),
                std::vector<char>(b, b + to->bytes(slab, plane)));
      EXPECT_EQ(At(to->updates(), slab), At(from->updates(), old));
    }
  }
}

// Six layers shared: m is divided by 6 and v by 36. Of 8-bit values only the
// scales change.
TEST_F(DelinkStateTest, ScalesByTheDegree) {
  for (const StateStorage storage : kStorages) {
    const auto from = Store("all", Moments(storage));
    Fill(*from);
    const auto to = Delinked(*from, "none", StatePolicy::kScale);
    // An exact value is rounded once, a bf16 once to 8 bits, and a scale once.
    const float tolerance = storage == StateStorage::kBF16 ? 0x1p-8F : 0x1p-22F;
    for (const int state : {0, 1}) {
      const float divisor = state == 0 ? 6 : 36;
      const auto before = ValuesOf(*from, "blocks/0/attention", state, 0);
      const auto after = ValuesOf(*to, "blocks/3/attention", state, 0);
      for (size_t i = 0; i < before.size(); ++i) {
        ASSERT_NEAR(after[i], before[i] / divisor,
                    tolerance * std::abs(before[i] / divisor));
      }
      if (storage != StateStorage::kBlock8) continue;
      const auto codes = [&](const ParamStore& store, const char* name) {
        const auto place = store.state(SlabNamed(store, name), state, 0);
        const auto* const first = static_cast<const uint8_t*>(place.values);
        return std::vector<uint8_t>(first, first + place.held.size());
      };
      EXPECT_EQ(codes(*from, "blocks/0/attention"),
                codes(*to, "blocks/3/attention"));
    }
    ExpectSameEmbedding(*from, *to);
  }
}

TEST_F(DelinkStateTest, ResetsToZero) {
  for (const StateStorage storage : kStorages) {
    const auto from = Store("all", Moments(storage));
    Fill(*from);
    const auto to = Delinked(*from, "none", StatePolicy::kReset);
    for (const int state : {0, 1}) {
      const auto values = ValuesOf(*to, "blocks/2/mlp", state, 0);
      EXPECT_EQ(values, std::vector<float>(values.size(), 0.0F));
    }
    EXPECT_EQ(At(to->updates(), SlabNamed(*to, "blocks/2/mlp")), 0);
    ExpectSameEmbedding(*from, *to);
  }
}

// A state that the old store keeps of other tensors: Muon's v, which is of
// vectors and embeddings, for AdamW.
TEST_F(DelinkStateTest, WhatTheOldStoreHasOfOtherTensorsIsReset) {
  std::vector<StateSpec> muon = TwoMoments();
  At(muon, 1).hidden.extent = StateExtent::kNone;
  const auto from = Store("all", muon);
  Fill(*from);
  const auto to = Store("none", TwoMoments());
  Fill(*to);
  SelfCommunicator self;
  ASSERT_EQ(Delink(*from, *to, StatePolicy::kCopy, self), absl::OkStatus());
  EXPECT_EQ(ValuesOf(*to, "blocks/3/mlp", 0, 0),
            ValuesOf(*from, "blocks/0/mlp", 0, 0));
  EXPECT_TRUE(ValuesOf(*from, "blocks/0/mlp", 1, 0).empty());
  const auto v = ValuesOf(*to, "blocks/3/mlp", 1, 0);
  ASSERT_FALSE(v.empty());
  EXPECT_EQ(v, std::vector<float>(v.size(), 0.0F));
  EXPECT_EQ(ValuesOf(*to, "embed/embedding", 1, 0),
            ValuesOf(*from, "embed/embedding", 1, 0));
}

TEST_F(DelinkStateTest, FactoredStatisticsAreQuadratic) {
  const auto from = Store("all", Factored());
  Fill(*from);
  const auto to = Delinked(*from, "groups:2", StatePolicy::kScale);
  for (const auto& [state, divisor] :
       {std::pair{0, 2.0F}, std::pair{1, 4.0F}, std::pair{2, 4.0F}}) {
    const auto before = ValuesOf(*from, "blocks/0/mlp", state, 0);
    const auto after = ValuesOf(*to, "blocks/3/mlp", state, 0);
    ASSERT_FALSE(before.empty());
    for (size_t i = 0; i < before.size(); ++i) {
      ASSERT_FLOAT_EQ(after[i], before[i] / divisor);
    }
  }
}

// Every change of placement gives the state of the single process (moments:
// delink_moves_test), also of whole slabs, whose owners change with the switch.
TEST_F(DelinkStateTest, ReshardsFactoredStatistics) {
  const auto from = Store("all", Factored());
  Fill(*from);
  const auto expected = Delinked(*from, "groups:2", StatePolicy::kScale);
  for (const std::pair<int, int>& zero :
       {std::pair{0, 1}, std::pair{1, 0}, std::pair{1, 1}}) {
    const absl::Status status = RunRanks(3, [&](Communicator& comm) {
      // Registries hold what Bind changes: each rank has its own.
      ParamRegistry registry;
      testing::DeclareToy(registry, kBlocks, kWidth);
      const testing::StoreOptions options{.rank = comm.rank(),
                                          .ranks = comm.size(),
                                          .states = Factored(),
                                          .whole_tensors = WholeTensors::kAll};
      const auto before = MakeStore(*device_, registry, kBlocks, Map("all"),
                                    zero.first, options);
      Fill(*before);
      const auto after = MakeStore(*device_, registry, kBlocks, Map("groups:2"),
                                   zero.second, options);
      DELINK_RETURN_IF_ERROR(
          Delink(*before, *after, StatePolicy::kScale, comm));
      ForEachHeld(*after, [&](int slab, int state, size_t param, Range held,
                              const std::vector<float>& values) {
        std::vector<float> part(values.size());
        const auto stream = device_->NewStream();
        testing::ReadState(*expected, *stream, slab, state, param, held,
                           part.data());
        EXPECT_EQ(values, part)
            << after->slab(slab).name << ", rank " << comm.rank();
      });
      EXPECT_EQ(after->updates(), expected->updates());
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
  }
}

// A master goes along, if it is split with both halves, wherever it is.
TEST_F(DelinkStateTest, ReshardsMasters) {
  struct Case {
    MasterForm master;
    int zero_before, zero_after;
  };
  for (const Case& c :
       {Case{MasterForm::kWhole, 0, 1}, Case{MasterForm::kWhole, 1, 0},
        Case{MasterForm::kSplit, 0, 1}, Case{MasterForm::kSplit, 1, 0},
        Case{MasterForm::kSplit, 1, 1}}) {
    const absl::Status status = RunRanks(2, [&](Communicator& comm) {
      ParamRegistry registry;
      testing::DeclareToy(registry, kBlocks, kWidth);
      const testing::StoreOptions options{.dtype = DType::kBF16,
                                          .rank = comm.rank(),
                                          .ranks = comm.size(),
                                          .master = c.master};
      const auto before = MakeStore(*device_, registry, kBlocks, Map("all"),
                                    c.zero_before, options);
      before->InitWeights(3);
      const auto after = MakeStore(*device_, registry, kBlocks, Map("none"),
                                   c.zero_after, options);
      DELINK_RETURN_IF_ERROR(
          Delink(*before, *after, StatePolicy::kScale, comm));
      // From the begin, the same numbers in f32.
      const auto exact =
          MakeStore(*device_, registry, kBlocks, Map("all"), 0, {});
      exact->InitWeights(3);
      const int slab = SlabNamed(*after, "blocks/5/attention");
      const int old = SlabNamed(*exact, "blocks/0/attention");
      const Range held = after->held(slab, Plane::kState0);
      std::vector<float> values(static_cast<size_t>(held.size()));
      std::vector<float> wanted = values;
      const auto stream = device_->NewStream();
      testing::ReadParameters(*after, *stream, slab, held.begin, held.size(),
                              values.data());
      testing::ReadParameters(*exact, *stream, old, held.begin, held.size(),
                              wanted.data());
      EXPECT_EQ(values, wanted);
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
  }
}

}  // namespace
}  // namespace delink::delink_state_test
