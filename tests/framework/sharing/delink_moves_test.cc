// Who sends what at a switch, and switches between layouts of every kind.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "framework/base/at.h"
#include "framework/base/rng.h"
#include "framework/base/status_macros.h"
#include "framework/comm/self_communicator.h"
#include "framework/comm/thread_communicator.h"
#include "framework/sharing/delink.h"
#include "framework/sharing/resolve.h"
#include "tests/framework/comm/counting_communicator.h"
#include "tests/framework/module/plain_values.h"
#include "tests/framework/module/toy_model.h"
#include "tests/framework/sharing/cut_model.h"

namespace delink::delink_moves_test {
namespace {

using testing::AnyOf;
using testing::CutStore;
using testing::DeclareCut;
using testing::MakeStore;

constexpr int kBlocks = 6;

SharingMap Map(const ParamRegistry& registry, const std::string& text) {
  return ResolveSharing(*ParseShareSpec(text), registry, kBlocks).value();
}

// Muon's: matrices of blocks have a momentum alone.
std::vector<StateSpec> MuonStates() {
  std::vector<StateSpec> states = TwoMoments();
  states[1].hidden.extent = StateExtent::kNone;
  return states;
}

// What all ranks together send at a switch of bf16 weights, and what it is
// about: `least`, what new owners have to get, of each old slab once; `to_all`,
// master and state of every new slab whose owner changes, to all other ranks.
struct Traffic {
  int64_t sent = 0, least = 0, to_all = 0;
};

int64_t BytesOf(const ParamStore& store, const Slab& slab) {
  int64_t bytes = 0;
  for (const SlabParam& param : slab.params) {
    const ParamDecl& decl = store.registry().decl(param.decl);
    bytes += decl.spec.shape.elements() * SizeOf(DType::kF32);
    for (const StateSpec& spec : store.states()) {
      const StateExtent grid = spec.Of(KindOf(decl, store.blocks())).extent;
      bytes +=
          StateShape(decl.spec.shape, grid).elements() * SizeOf(DType::kF32);
    }
  }
  return bytes;
}

Traffic TrafficOf(const std::string& share_before,
                  const std::string& share_after, int zero_before,
                  int zero_after, StatePolicy policy) {
  std::atomic<int64_t> sent = 0;
  Traffic traffic;
  const std::unique_ptr<Device> device = NewCpuDevice();
  const absl::Status status = RunRanks(4, [&](Communicator& comm) {
    ParamRegistry registry;
    testing::DeclareToy(registry, kBlocks, 37);
    const testing::StoreOptions options{.dtype = DType::kBF16,
                                        .rank = comm.rank(),
                                        .ranks = comm.size(),
                                        .states = MuonStates(),
                                        .whole_tensors = WholeTensors::kHidden};
    const auto before =
        MakeStore(*device, registry, kBlocks, Map(registry, share_before),
                  zero_before, options);
    before->InitWeights(1);
    const auto after =
        MakeStore(*device, registry, kBlocks, Map(registry, share_after),
                  zero_after, options);
    testing::CountingCommunicator counting(comm);
    DELINK_RETURN_IF_ERROR(Delink(*before, *after, policy, counting));
    EXPECT_EQ(counting.gathered() + counting.reduced() == 0,
              counting.calls() == 0)
        << "only the outcome is agreed on by all";
    sent += counting.sent();
    if (comm.rank() != 0) return absl::OkStatus();
    const auto origins =
        *RelationOf(registry, kBlocks, before->sharing(), after->sharing());
    std::set<std::pair<int, int>> known;  // old slab, new owner
    for (size_t s = 0; s < after->slabs().size(); ++s) {
      const int owner = after->placement(static_cast<int>(s)).owner;
      const int old = origins[s].slab;
      if (owner == before->placement(old).owner) continue;
      const int64_t bytes = BytesOf(*after, after->slabs()[s]);
      traffic.to_all += bytes * (comm.size() - 1);
      if (known.emplace(old, owner).second) traffic.least += bytes;
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  traffic.sent = sent;
  return traffic;
}

// Owners change under Muon: what a new owner has not is sent to it, once, and
// to nobody else.
TEST(DelinkMovesTest, SendsOnlyWhatNewOwnersHaveNot) {
  for (const StatePolicy policy :
       {StatePolicy::kCopy, StatePolicy::kScale, StatePolicy::kCalibrated}) {
    for (const char* after : {"none", "groups:3"}) {
      const Traffic traffic = TrafficOf("all", after, 1, 1, policy);
      EXPECT_GT(traffic.least, 0);
      EXPECT_EQ(traffic.sent, traffic.least) << after;
      EXPECT_LE(3 * traffic.sent, traffic.to_all);
    }
  }
}

TEST(DelinkMovesTest, SendsNothingThatStays) {
  // The same owners before and after.
  EXPECT_EQ(TrafficOf("none", "none", 1, 1, StatePolicy::kScale).sent, 0);
  // Every rank has everything.
  EXPECT_EQ(TrafficOf("all", "none", 0, 0, StatePolicy::kScale).sent, 0);
  EXPECT_EQ(TrafficOf("all", "none", 0, 1, StatePolicy::kScale).sent, 0);
}

// A state's value, by its parameter's name and number.
float StateOf(const std::string& name, int state, int64_t number) {
  const RngKey key = Fold(Fold(KeyFromSeed(3), std::string_view(name)),
                          static_cast<uint64_t>(state));
  const auto value =
      static_cast<float>(Normal(key, static_cast<uint64_t>(number)));
  return state == 0 ? value : std::abs(value);
}

// Calls visit(slab, state, param, numbers) for the values of states that a
// store holds: their numbers in the whole parameter.
template <typename Visit>
void ForEachState(const ParamStore& store, Visit visit) {
  for (size_t s = 0; s < store.slabs().size(); ++s) {
    const int slab = static_cast<int>(s);
    for (size_t p = 0; p < store.slabs()[s].params.size(); ++p) {
      const auto all =
          testing::NumbersOf(store.local(slab), p, store.registry());
      for (const int state : {0, 1}) {
        const Range held = store.state(slab, state, p).held;
        visit(slab, state, p,
              std::vector<int64_t>(all.begin() + held.begin,
                                   all.begin() + held.end));
      }
    }
  }
}

// The held values of a state, as the numbers that they stand for.
std::vector<float> HeldOf(const ParamStore& store, int slab, int state,
                          size_t param) {
  const Range held = store.state(slab, state, param).held;
  std::vector<float> values(static_cast<size_t>(held.size()));
  const auto stream = store.device().NewStream();
  testing::ReadState(store, *stream, slab, state, param, held, values.data());
  return values;
}

void FillState(ParamStore& store) {
  const auto stream = store.device().NewStream();
  ForEachState(store, [&](int slab, int state, size_t param,
                          const std::vector<int64_t>& numbers) {
    const SlabParam& place = store.slab(slab).params[param];
    const std::string& name = store.registry().decl(place.decl).name;
    std::vector<float> values;
    for (const int64_t number : numbers) {
      values.push_back(StateOf(name, state, number));
    }
    testing::WriteState(store, *stream, slab, state, param,
                        store.state(slab, state, param).held, values.data());
  });
  for (size_t s = 0; s < store.slabs().size(); ++s) {
    store.updates()[s] = 100 + store.local(static_cast<int>(s)).logical;
  }
}

// Weights, states and update counts of a rank are those of the single process;
// states that are kept in other blocks of 8 bits but for `off`.
void ExpectSame(const ParamStore& store, const ParamStore& whole, float off) {
  const auto logical = [&](int slab, size_t param) {
    const LocalSlab& local = store.local(slab);
    return std::pair(local.logical, local.params[param]);
  };
  ForEachState(store, [&](int slab, int state, size_t param,
                          const std::vector<int64_t>& numbers) {
    const auto [s, p] = logical(slab, param);
    const std::vector<float> values = HeldOf(store, slab, state, param);
    const std::vector<float> expected = HeldOf(whole, s, state, p);
    for (size_t i = 0; i < numbers.size(); ++i) {
      ASSERT_NEAR(values[i], At(expected, numbers[i]), off)
          << store.slab(slab).name;
    }
  });
  for (size_t s = 0; s < store.slabs().size(); ++s) {
    const int slab = static_cast<int>(s);
    const auto weights = testing::Read<float>(store, slab, Plane::kWeight);
    for (size_t p = 0; p < store.slabs()[s].params.size(); ++p) {
      const auto [l, q] = logical(slab, p);
      const auto expected = testing::Read<float>(whole, l, Plane::kWeight);
      int64_t at = store.slabs()[s].params[p].offset;
      for (const int64_t number :
           testing::NumbersOf(store.local(slab), p, store.registry())) {
        ASSERT_EQ(At(weights, at++),
                  At(expected, whole.slab(l).params[q].offset + number));
      }
    }
    ASSERT_EQ(store.updates()[s],
              At(whole.updates(), store.local(slab).logical));
  }
}

// Old and new layouts over the same ranks, cut in different ways.
TEST(DelinkMovesTest, FromAnyLayoutToAnyOther) {
  AnyOf any(5);
  const std::unique_ptr<Device> device = NewCpuDevice();
  for (int trial = 0; trial < 60; ++trial) {
    const int ranks = any({2, 4, 6, 8});
    const Layout::Options before = any.LayoutOf(ranks);
    const Layout::Options after = any.LayoutOf(ranks);
    const StatePolicy policy = static_cast<StatePolicy>(any({0, 1, 2}));
    const char* const share = any({0, 1}) == 0 ? "none" : "groups:3";
    const StateStorage storage = testing::kStorages[any({0, 1, 2})];
    const auto switched = [&](const ParamRegistry& registry, int rank,
                              const Layout::Options& from_options,
                              const Layout::Options& to_options,
                              Communicator& comm) {
      const auto from = CutStore(*device, registry, "all", rank, from_options,
                                 testing::MomentsIn(storage));
      from->InitWeights(3);
      FillState(*from);
      auto to = CutStore(*device, registry, share, rank, to_options,
                         testing::MomentsIn(storage));
      const absl::Status status = Delink(*from, *to, policy, comm);
      EXPECT_TRUE(status.ok()) << status;
      return to;
    };
    ParamRegistry registry;
    DeclareCut(registry);
    SelfCommunicator self;
    const auto whole = switched(registry, 0, {}, {}, self);
    const absl::Status status = RunRanks(ranks, [&](Communicator& comm) {
      ParamRegistry own;
      DeclareCut(own);
      const auto to = switched(own, comm.rank(), before, after, comm);
      // Each of two roundings half of what codes are apart, of at most 5.
      const bool cut = before.mesh.tensor > 1 || after.mesh.tensor > 1;
      ExpectSame(*to, *whole,
                 cut && storage == StateStorage::kBlock8 ? 5.0F / 64 : 0);
      return absl::OkStatus();
    });
    ASSERT_TRUE(status.ok()) << status << ", trial " << trial;
    ASSERT_FALSE(::testing::Test::HasFailure()) << "trial " << trial;
  }
}

int64_t PlanesOf(const ParamStore& store) {
  int64_t bytes = 0;
  for (int p = 0; p < kPlanes; ++p) {
    const auto plane = static_cast<Plane>(p);
    if (store.has(plane)) bytes += store.bytes(plane);
  }
  return bytes;
}

// To another mesh, and back to where it came from: no rank has more than its
// planes before and after, and none has the model.
TEST(DelinkMovesTest, PeakIsWhatARankHasBeforeAndAfter) {
  const Layout::Options data = {.mesh = {.data = 4}, .zero = 1};
  const Layout::Options cut = {.mesh = {.tensor = 2, .pipeline = 2}};
  for (const bool back : {false, true}) {
    for (const StatePolicy policy :
         {StatePolicy::kScale, StatePolicy::kReset}) {
      const absl::Status status = RunRanks(4, [&](Communicator& comm) {
        const std::unique_ptr<Device> device = NewCpuDevice();
        ParamRegistry registry;
        DeclareCut(registry, 50);
        const int rank = comm.rank();
        const auto from =
            CutStore(*device, registry, "all", rank, back ? cut : data);
        from->InitWeights(3);
        const auto to =
            CutStore(*device, registry, "none", rank, back ? data : cut);
        DELINK_RETURN_IF_ERROR(Delink(*from, *to, policy, comm));
        const MemoryLedger& ledger = device->ledgers().allocated;
        EXPECT_EQ(ledger.highest(), PlanesOf(*from) + PlanesOf(*to));
        const std::unique_ptr<Device> other = NewCpuDevice();
        const auto whole = CutStore(*other, registry, "none", 0, {});
        if (!back) {
          EXPECT_LT(2 * ledger.highest(), PlanesOf(*whole));
        }
        return absl::OkStatus();
      });
      ASSERT_TRUE(status.ok()) << status;
    }
  }
}

}  // namespace
}  // namespace delink::delink_moves_test
