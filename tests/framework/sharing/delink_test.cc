#include "framework/sharing/delink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/at.h"
#include "framework/comm/self_communicator.h"
#include "framework/sharing/resolve.h"
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
void FillAll(ParamStore& store) {
  for (size_t s = 0; s < store.slabs().size(); ++s) {
    const int slab = static_cast<int>(s);
    for (const Plane plane : {Plane::kWeight, Plane::kState0, Plane::kState1}) {
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

}  // namespace
}  // namespace delink::delink_test
