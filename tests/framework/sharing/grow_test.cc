#include "framework/sharing/grow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "framework/base/at.h"
#include "framework/comm/self_communicator.h"
#include "framework/comm/thread_communicator.h"
#include "framework/sharing/delink.h"
#include "tests/framework/module/toy_model.h"

namespace delink::grow_test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using testing::MakeStore;
using testing::Read;
using testing::SlabNamed;
using testing::ToyValue;
using testing::Write;
using Values = std::vector<float>;

constexpr int kBlocks = 6;
constexpr int64_t kWidth = 17;
constexpr uint64_t kSeed = 9;

class GrowTest : public ::testing::Test {
 protected:
  GrowTest() { testing::DeclareToy(registry_, kBlocks, kWidth); }

  static ShareSpec Spec(const std::string& text) {
    return *ParseShareSpec(text);
  }
  SharingMap Map(const std::string& share, std::vector<int> visited) const {
    return ResolveSharing(Spec(share), registry_, kBlocks, std::move(visited))
        .value();
  }
  // "blocks/4/mlp from blocks/1/mlp, 2 to 1, copied" for all slabs of blocks.
  std::vector<std::string> Relation(const SharingMap& from,
                                    const SharingMap& to,
                                    const Growth& growth) const {
    const auto origins = GrowthOf(registry_, kBlocks, from, to, growth);
    if (!origins.ok()) return {std::string(origins.status().message())};
    const std::vector<Slab> old = LayOutSlabs(registry_, kBlocks, from);
    const std::vector<Slab> now = LayOutSlabs(registry_, kBlocks, to);
    std::vector<std::string> texts;
    for (size_t s = 0; s < now.size(); ++s) {
      const SlabOrigin& origin = (*origins)[s];
      if (now[s].part != "mlp") continue;
      std::string text = now[s].name + " ";
      if (origin.fresh()) {
        texts.push_back(text + "fresh");
        continue;
      }
      text += At(old, origin.slab).name + " " + std::to_string(origin.before) +
              ":" + std::to_string(origin.after);
      texts.push_back(text + (origin.copied ? " copied" : ""));
    }
    return texts;
  }

  std::unique_ptr<ParamStore> Store(const SharingMap& map, int zero = 0,
                                    const testing::StoreOptions& options = {}) {
    return MakeStore(*device_, registry_, kBlocks, map, zero, options);
  }
  static void Fill(ParamStore& store) {
    for (size_t s = 0; s < store.slabs().size(); ++s) {
      const int slab = static_cast<int>(s);
      for (const Plane plane :
           {Plane::kWeight, Plane::kState0, Plane::kState1}) {
        Write<float>(store, slab, plane, [=](int64_t i) {
          return static_cast<float>(ToyValue(slab, plane, i));
        });
      }
      store.updates()[s] = 100 + static_cast<int64_t>(s);
    }
  }

  std::unique_ptr<Device> device_ = NewCpuDevice();
  ParamRegistry registry_;
  SelfCommunicator self_;
};

using Texts = std::vector<std::string>;

TEST_F(GrowTest, CopiesTheVisitedBlockNextBefore) {
  EXPECT_EQ(Relation(Map("none", {0, 3}), Map("none", {0, 1, 3, 5}), {}),
            (Texts{"blocks/0/mlp blocks/0/mlp 1:1",
                   "blocks/1/mlp blocks/0/mlp 1:1 copied",
                   "blocks/3/mlp blocks/3/mlp 1:1",
                   "blocks/5/mlp blocks/3/mlp 1:1 copied"}));
}

TEST_F(GrowTest, OrWhatItWouldHaveShared) {
  const Growth growth{.share = Spec("cycle:2")};
  EXPECT_EQ(
      Relation(Map("cycle:2", {0, 1, 2}), Map("none", {}), growth),
      (Texts{"blocks/0/mlp blocks/0/mlp 2:1", "blocks/1/mlp blocks/1/mlp 1:1",
             "blocks/2/mlp blocks/0/mlp 2:1",
             "blocks/3/mlp blocks/1/mlp 1:1 copied",
             "blocks/4/mlp blocks/0/mlp 2:1 copied",
             "blocks/5/mlp blocks/1/mlp 1:1 copied"}));
}

TEST_F(GrowTest, CyclesThroughTheVisitedBlocks) {
  EXPECT_EQ(Relation(Map("none", {0, 3}), Map("none", {}),
                     {.policy = GrowPolicy::kCycle}),
            (Texts{"blocks/0/mlp blocks/0/mlp 1:1",
                   "blocks/1/mlp blocks/3/mlp 1:1 copied",
                   "blocks/2/mlp blocks/0/mlp 1:1 copied",
                   "blocks/3/mlp blocks/3/mlp 1:1",
                   "blocks/4/mlp blocks/0/mlp 1:1 copied",
                   "blocks/5/mlp blocks/3/mlp 1:1 copied"}));
}

// What is shared with blocks that were visited is theirs.
TEST_F(GrowTest, BeginsFreshWhereNoneWasVisited) {
  const Growth growth{.policy = GrowPolicy::kRandom, .share = Spec("all")};
  EXPECT_EQ(Relation(Map("all", {0, 1}), Map("groups:2", {}), growth),
            (Texts{"blocks/0/mlp blocks/0/mlp 2:3", "blocks/3/mlp fresh"}));
  EXPECT_EQ(Relation(Map("all", {0}), Map("all", {}), growth),
            (Texts{"blocks/0/mlp blocks/0/mlp 1:6"}));
}

// A slab that is named after a block that was not there.
TEST_F(GrowTest, NewBlocksMayLead) {
  EXPECT_EQ(Relation(Map("mlp=all", {2, 3}), Map("mlp=all", {}),
                     {.share = Spec("mlp=all")}),
            (Texts{"blocks/0/mlp blocks/2/mlp 2:6"}));
}

TEST_F(GrowTest, SaysWhatDoesNotGo) {
  EXPECT_THAT(
      Relation(Map("none", {0, 3}), Map("none", {0, 1, 2}), {}),
      Each(HasSubstr("blocks 0,3 are visited before the switch, but "
                     "after it only 0,1,2: a switch cannot drop blocks")));
  EXPECT_THAT(
      Relation(Map("none", {0, 1}), Map("all", {}), {}),
      Each(HasSubstr("blocks 0 and 1 share attention after the switch but "
                     "did not before it")));
  const Growth zero{.policy = GrowPolicy::kZero};
  EXPECT_THAT(
      Relation(Map("attention=all", {0}), Map("attention=all", {}), zero),
      Each(HasSubstr("block 1 cannot begin with zeros: it shares "
                     "attention with blocks that were visited")));
  ParamRegistry other;
  for (int i = 0; i < 2; ++i) {
    Scope(other)
        .Layer(i + 1, "blocks/" + std::to_string(i))
        .Part("mlp")
        .Param("up", {.shape = {2 + i}});
  }
  const auto grown = [&](const Growth& growth) {
    return std::string(
        GrowthOf(other, 2, {.visited = {0}}, {}, growth).status().message());
  };
  EXPECT_EQ(grown({.policy = GrowPolicy::kRandom}), "");
  EXPECT_EQ(grown({}),
            "block 1 would be a copy of block 0, which declares other "
            "parameters in mlp; let it begin as \"random\" or \"zero\"");
  EXPECT_THAT(grown(zero), HasSubstr("block 1 cannot begin with zeros: none of "
                                     "its parameters is declared"));
}

TEST_F(GrowTest, StateIsThePolicys) {
  const auto from = Store(Map("none", {0, 3}));
  Fill(*from);
  for (const StatePolicy policy : {StatePolicy::kScale, StatePolicy::kReset}) {
    const auto to = Store(Map("none", {}));
    ASSERT_TRUE(Delink(*from, *to, policy, self_).ok());
    const int old = SlabNamed(*from, "blocks/3/mlp");
    for (const char* name : {"blocks/3/mlp", "blocks/4/mlp"}) {
      SCOPED_TRACE(name);
      const int now = SlabNamed(*to, name);
      EXPECT_EQ(Read<float>(*to, now, Plane::kWeight),
                Read<float>(*from, old, Plane::kWeight));
      const bool reset = name[7] == '4' && policy == StatePolicy::kReset;
      for (const Plane plane : {Plane::kState0, Plane::kState1}) {
        const Values before = Read<float>(*from, old, plane);
        EXPECT_EQ(Read<float>(*to, now, plane),
                  reset ? Values(before.size(), 0) : before);
      }
      EXPECT_EQ(At(to->updates(), now), reset ? 0 : At(from->updates(), old));
    }
  }
}

// One block's gradient was not a sum, that of two that shared is: n is 2.
TEST_F(GrowTest, CopiesOfWhatWasSharedAreScaled) {
  const auto from = Store(Map("all", {0, 1}));
  Fill(*from);
  const auto to = Store(Map("none", {}));
  ASSERT_TRUE(
      Delink(*from, *to, StatePolicy::kScale, self_, {.share = Spec("all")})
          .ok());
  const int old = SlabNamed(*from, "blocks/0/mlp");
  Values m = Read<float>(*from, old, Plane::kState0);
  Values v = Read<float>(*from, old, Plane::kState1);
  for (float& x : m) x /= 2;
  for (float& x : v) x /= 4;
  for (int i = 0; i < kBlocks; ++i) {
    const int now = SlabNamed(*to, "blocks/" + std::to_string(i) + "/mlp");
    EXPECT_EQ(Read<float>(*to, now, Plane::kState0), m) << i;
    EXPECT_EQ(Read<float>(*to, now, Plane::kState1), v) << i;
  }
}

// Whatever the sharding: the weights of a model from scratch, no state, and all
// else as it was.
TEST_F(GrowTest, FreshBlocksAreThoseOfAModelFromScratch) {
  const auto scratch = Store(Map("none", {}));
  scratch->InitWeights(kSeed);
  for (const GrowPolicy policy : {GrowPolicy::kRandom, GrowPolicy::kZero}) {
    for (const int zero : {0, 1}) {
      const absl::Status status = RunRanks(2, [&](Communicator& comm) {
        const testing::StoreOptions options{.rank = comm.rank(), .ranks = 2};
        const auto from = Store(Map("none", {0, 3}), zero, options);
        Fill(*from);
        const auto to = Store(Map("none", {}), zero, options);
        DELINK_CHECK(Delink(*from, *to, StatePolicy::kScale, comm,
                            {.policy = policy, .seed = kSeed})
                         .ok());
        for (size_t s = 0; s < to->slabs().size(); ++s) {
          const int slab = static_cast<int>(s);
          const Slab& now = to->slab(slab);
          const bool block = now.name.starts_with("blocks/");
          const int number = block ? now.leader - 1 : 0;
          const Values weights = Read<float>(*to, slab, Plane::kWeight);
          if (number == 0 || number == 3) {
            const int old = SlabNamed(*from, now.name);
            EXPECT_EQ(weights, Read<float>(*from, old, Plane::kWeight));
            EXPECT_EQ(Read<float>(*to, slab, Plane::kState1),
                      Read<float>(*from, old, Plane::kState1));
            EXPECT_EQ(At(to->updates(), slab), At(from->updates(), old));
            continue;
          }
          Values want = Read<float>(*scratch, slab, Plane::kWeight);
          for (const SlabParam& p : now.params) {
            if (policy != GrowPolicy::kZero) continue;
            if (!registry_.decl(p.decl).spec.residual) continue;
            std::fill_n(want.begin() + p.offset, p.elements, 0.0F);
          }
          EXPECT_EQ(weights, want) << now.name;
          EXPECT_THAT(Read<float>(*to, slab, Plane::kState0), Each(0.0F));
          EXPECT_EQ(At(to->updates(), slab), 0);
        }
        return absl::OkStatus();
      });
      EXPECT_TRUE(status.ok()) << status;
    }
  }
}

}  // namespace
}  // namespace delink::grow_test
