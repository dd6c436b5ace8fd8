#include "framework/sharing/delink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "framework/base/at.h"
#include "framework/base/rng.h"
#include "framework/base/status_macros.h"
#include "framework/comm/self_communicator.h"
#include "framework/comm/thread_communicator.h"
#include "framework/sharing/resolve.h"
#include "framework/tensor/bfloat16.h"
#include "tests/framework/module/toy_model.h"

namespace delink::delink_test {
namespace {

using testing::MakeStore;
using testing::Read;
using testing::SlabNamed;
using testing::ToyValue;
using testing::Write;

constexpr int kBlocks = 6;
constexpr int64_t kWidth = 17;

// Weights, state and update counts that tell slabs, planes and elements apart.
// In bf16 weights and masters have nothing to do with each other: both are to
// be carried, not made.
void FillAll(ParamStore& store) {
  for (size_t s = 0; s < store.slabs().size(); ++s) {
    const int slab = static_cast<int>(s);
    for (const Plane plane :
         {Plane::kWeight, Plane::kState0, Plane::kState1, Plane::kMaster}) {
      if (!store.has(plane)) continue;
      if (store.dtype(plane) == DType::kBF16) {
        Write<BFloat16>(store, slab, plane, [=](int64_t i) {
          return BFloat16(ToyValue(slab, plane, i));
        });
        continue;
      }
      Write<float>(store, slab, plane, [=](int64_t i) {
        return static_cast<float>(ToyValue(slab, plane, i));
      });
    }
    store.updates()[s] = 100 + static_cast<int64_t>(s);
  }
}

class DelinkTest : public ::testing::Test {
 protected:
  DelinkTest() { testing::DeclareToy(registry_, kBlocks, kWidth); }

  SharingMap Map(const std::string& text) const {
    return ResolveSharing(*ParseShareSpec(text), registry_, kBlocks).value();
  }
  std::unique_ptr<ParamStore> Store(const std::string& share, int zero = 0,
                                    const testing::StoreOptions& options = {}) {
    return MakeStore(*device_, registry_, kBlocks, Map(share), zero, options);
  }
  std::unique_ptr<ParamStore> Delinked(const ParamStore& from,
                                       const std::string& share,
                                       StatePolicy policy) {
    auto to = Store(share);
    SelfCommunicator self;
    const absl::Status status = Delink(from, *to, policy, self);
    DELINK_CHECK(status.ok()) << status.ToString();
    return to;
  }

  std::unique_ptr<Device> device_ = NewCpuDevice();
  ParamRegistry registry_;
};

// Whatever the sharing before and after: each layer sees the same bytes.
TEST_F(DelinkTest, EveryLayerKeepsItsWeights) {
  const std::vector<std::string> chain[] = {
      {"all", "groups:3", "none"},
      {"all", "cycle:3", "none"},
      {"groups:2", "groups:6"},
      {"attention=all,mlp=cycle:2", "attention=groups:2", "none"}};
  for (const auto& stages : chain) {
    std::unique_ptr<ParamStore> from = Store(stages[0]);
    FillAll(*from);
    for (size_t i = 1; i < stages.size(); ++i) {
      auto to = Delinked(*from, stages[i], StatePolicy::kScale);
      std::map<std::string, LogicalTensor> before;
      for (const LogicalTensor& tensor : from->layout().tensors()) {
        before[tensor.name] = tensor;
      }
      for (const LogicalTensor& now : to->layout().tensors()) {
        const LogicalTensor& old = before.at(now.name);
        const auto a = Read<float>(*from, old.slab, Plane::kWeight);
        const auto b = Read<float>(*to, now.slab, Plane::kWeight);
        for (int64_t e = 0; e < now.shape.elements(); ++e) {
          ASSERT_EQ(At(a, old.offset + e), At(b, now.offset + e))
              << now.name << " from " << stages[i - 1] << " to " << stages[i];
        }
      }
      from = std::move(to);
    }
  }
}

// The policies on a slab that six layers shared and on those that nobody
// shared; n is 6 when nothing is shared any more, 3 when pairs still are.
TEST_F(DelinkTest, StateByPolicy) {
  const auto from = Store("attention=all");
  FillAll(*from);
  const int old = SlabNamed(*from, "blocks/0/attention");
  for (const StatePolicy policy :
       {StatePolicy::kReset, StatePolicy::kCopy, StatePolicy::kScale}) {
    for (const auto& [share, n] :
         {std::pair{"none", 6.0F}, std::pair{"attention=groups:3", 3.0F}}) {
      SCOPED_TRACE(std::string(ToString(policy)) + " to " + share);
      const auto to = Delinked(*from, share, policy);
      for (const char* name : {"blocks/0/attention", "blocks/4/attention"}) {
        const int slab = SlabNamed(*to, name);
        std::vector<float> m = Read<float>(*from, old, Plane::kState0);
        std::vector<float> v = Read<float>(*from, old, Plane::kState1);
        for (float& x : m) x = policy == StatePolicy::kReset ? 0 : x;
        for (float& x : v) x = policy == StatePolicy::kReset ? 0 : x;
        if (policy == StatePolicy::kScale) {
          for (float& x : m) x /= n;
          for (float& x : v) x /= n * n;
        }
        EXPECT_THAT(Read<float>(*to, slab, Plane::kState0),
                    ::testing::Pointwise(::testing::FloatEq(), m));
        EXPECT_THAT(Read<float>(*to, slab, Plane::kState1),
                    ::testing::Pointwise(::testing::FloatEq(), v));
        EXPECT_EQ(At(to->updates(), slab),
                  policy == StatePolicy::kReset ? 0 : At(from->updates(), old));
      }
      for (const char* name : {"embed/embedding", "blocks/3/mlp", "other"}) {
        const int slab = SlabNamed(*to, name);
        const int before = SlabNamed(*from, name);
        for (const Plane plane : {Plane::kState0, Plane::kState1}) {
          EXPECT_EQ(Read<float>(*to, slab, plane),
                    Read<float>(*from, before, plane))
              << name;
        }
        EXPECT_EQ(At(to->updates(), slab), At(from->updates(), before));
      }
    }
  }
}

TEST_F(DelinkTest, OverwritesWhatWasThere) {
  const auto from = Store("all");
  FillAll(*from);
  auto to = Store("none");
  for (size_t s = 0; s < to->slabs().size(); ++s) {
    for (const Plane plane : {Plane::kState0, Plane::kState1}) {
      Write<float>(*to, static_cast<int>(s), plane,
                   [](int64_t) { return 7.0F; });
    }
  }
  SelfCommunicator self;
  ASSERT_TRUE(Delink(*from, *to, StatePolicy::kReset, self).ok());
  EXPECT_THAT(Read<float>(*to, SlabNamed(*to, "blocks/5/mlp"), Plane::kState1),
              ::testing::Each(0.0F));
}

TEST_F(DelinkTest, RefusesToShareMore) {
  const auto from = Store("groups:2");
  auto to = Store("all");
  to->InitWeights(3);
  const auto untouched = Read<float>(*to, 0, Plane::kWeight);
  SelfCommunicator self;
  const absl::Status status = Delink(*from, *to, StatePolicy::kCopy, self);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Read<float>(*to, 0, Plane::kWeight), untouched);
}

TEST_F(DelinkTest, WithoutStateBeforeThereIsNoneAfter) {
  const auto from = Store("all", 0, {.gradients = false, .states = {}});
  from->InitWeights(2);
  from->updates().assign(from->updates().size(), 9);
  const auto to = Delinked(*from, "none", StatePolicy::kScale);
  EXPECT_THAT(to->updates(), ::testing::Each(0));
  EXPECT_THAT(
      Read<float>(*to, SlabNamed(*to, "embed/embedding"), Plane::kState1),
      ::testing::Each(0.0F));
}

// Both stores and no third: nothing else is allocated on the device.
TEST_F(DelinkTest, PeakIsBothStores) {
  const auto from = Store("all");
  const auto to = Store("none");
  const int64_t allocations = device_->allocations();
  SelfCommunicator self;
  ASSERT_TRUE(Delink(*from, *to, StatePolicy::kScale, self).ok());
  EXPECT_EQ(device_->allocations(), allocations);
}

// Every change of placement gives the state of the single process.
TEST_F(DelinkTest, ReshardsState) {
  const auto from = Store("all");
  FillAll(*from);
  const auto expected = Delinked(*from, "groups:2", StatePolicy::kScale);
  for (const int ranks : {2, 3, 5}) {
    for (const int change : {0, 1, 2, 3}) {
      const int zero_before = change / 2, zero_after = change % 2;
      const absl::Status status = RunRanks(ranks, [&](Communicator& comm) {
        // Registries hold what Bind changes: each rank has its own.
        ParamRegistry registry;
        testing::DeclareToy(registry, kBlocks, kWidth);
        const testing::StoreOptions options{.rank = comm.rank(),
                                            .ranks = comm.size()};
        const auto before = MakeStore(*device_, registry, kBlocks, Map("all"),
                                      zero_before, options);
        FillAll(*before);
        const auto after = MakeStore(*device_, registry, kBlocks,
                                     Map("groups:2"), zero_after, options);
        DELINK_RETURN_IF_ERROR(
            Delink(*before, *after, StatePolicy::kScale, comm));
        for (size_t s = 0; s < after->slabs().size(); ++s) {
          const int slab = static_cast<int>(s);
          for (const Plane plane :
               {Plane::kWeight, Plane::kState0, Plane::kState1}) {
            const auto whole = Read<float>(*expected, slab, plane);
            const Range held = after->held(slab, plane);
            EXPECT_EQ(Read<float>(*after, slab, plane),
                      std::vector<float>(whole.begin() + held.begin,
                                         whole.begin() + held.end))
                << after->slabs()[s].name << ", rank " << comm.rank() << " of "
                << ranks << ", zero " << zero_before << " to " << zero_after;
          }
          EXPECT_EQ(after->updates()[s], expected->updates()[s]);
        }
        return absl::OkStatus();
      });
      EXPECT_TRUE(status.ok()) << status;
    }
  }
}

// The master is carried as state is, by the placement, but under every policy
// bit for bit, as weights are.
TEST_F(DelinkTest, ReshardsTheMaster) {
  const auto bf16 = [](int rank, int ranks) {
    return testing::StoreOptions{
        .dtype = DType::kBF16, .rank = rank, .ranks = ranks};
  };
  const auto from = Store("all", 0, bf16(0, 1));
  FillAll(*from);
  const auto expected = Store("groups:2", 0, bf16(0, 1));
  SelfCommunicator self;
  ASSERT_TRUE(Delink(*from, *expected, StatePolicy::kReset, self).ok());
  for (const char* slab : {"blocks/0/mlp", "blocks/3/mlp"}) {
    EXPECT_EQ(
        Read<float>(*expected, SlabNamed(*expected, slab), Plane::kMaster),
        Read<float>(*from, SlabNamed(*from, "blocks/0/mlp"), Plane::kMaster));
  }
  for (const int change : {0, 1, 2, 3}) {
    const absl::Status status = RunRanks(3, [&](Communicator& comm) {
      ParamRegistry registry;
      testing::DeclareToy(registry, kBlocks, kWidth);
      const auto options = bf16(comm.rank(), comm.size());
      const auto before = MakeStore(*device_, registry, kBlocks, Map("all"),
                                    change / 2, options);
      FillAll(*before);
      const auto after = MakeStore(*device_, registry, kBlocks, Map("groups:2"),
                                   change % 2, options);
      DELINK_RETURN_IF_ERROR(
          Delink(*before, *after, StatePolicy::kReset, comm));
      for (size_t s = 0; s < after->slabs().size(); ++s) {
        const int slab = static_cast<int>(s);
        const auto whole = Read<float>(*expected, slab, Plane::kMaster);
        const Range held = after->held(slab, Plane::kMaster);
        EXPECT_EQ(Read<float>(*after, slab, Plane::kMaster),
                  std::vector<float>(whole.begin() + held.begin,
                                     whole.begin() + held.end));
        const auto a = Read<BFloat16>(*after, slab, Plane::kWeight);
        const auto b = Read<BFloat16>(*expected, slab, Plane::kWeight);
        EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end()));
      }
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status << ", change " << change;
  }
}

}  // namespace
}  // namespace delink::delink_test
