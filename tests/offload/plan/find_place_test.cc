#include "offload/plan/find_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>

namespace delink {
namespace {

constexpr Tier kDevice = Tier::kDevice, kHost = Tier::kHost;
constexpr int64_t kSlabs = 8;
constexpr int64_t kWeights = 20, kGradients = 40, kState = 120, kRest = 100;
constexpr int64_t kActivations = 50;
// Of the copies that a set has on the device, once any of it is on the host.
constexpr int64_t kCopies = 30;

// Of blocks, by shares, and embedding and head, whose state is 60 and needs no
// copies.
absl::StatusOr<PlaceCost> CostOf(const AutoPlace& at) {
  PlaceCost cost{.device = kRest, .host = 0, .seconds = 1};
  const auto add = [&](double share, int64_t bytes) {
    const auto there = static_cast<int64_t>(share * kSlabs + 0.5) * bytes;
    cost.device += kSlabs * bytes - there + (there > 0 ? kCopies : 0);
    cost.host += there;
    cost.seconds += static_cast<double>(there) / 1000;
  };
  add(at.state, kState);
  add(at.gradients, kGradients);
  add(at.activations, kActivations);
  add(at.weights, kWeights);
  cost.device += at.ends > 0 ? 0 : 60;
  cost.host += at.ends > 0 ? 60 : 0;
  if (at.update == kHost) {
    cost.host += at.state > 0 ? 100 : 0;
    cost.seconds -= at.state / 10;
  }
  return cost;
}

FoundPlace Find(PlaceLimits limits) {
  const absl::StatusOr<FoundPlace> found = FindPlace(limits, kSlabs, CostOf);
  EXPECT_TRUE(found.ok()) << found.status();
  return found.value_or(FoundPlace());
}

const int64_t kAll = CostOf({})->device;
const int64_t kLeast =
    CostOf(
        {.state = 1, .gradients = 1, .weights = 1, .activations = 1, .ends = 1})
        ->device;

// One slab less.
std::optional<AutoPlace> OneLess(AutoPlace at) {
  for (double* share :
       {&at.weights, &at.activations, &at.gradients, &at.state}) {
    if (*share == 0) continue;
    *share -= 1.0 / kSlabs;
    return at;
  }
  return std::nullopt;
}

TEST(FindPlace, LeavesAllOnTheDeviceWhereItFits) {
  for (const PlaceLimits& limits : {PlaceLimits{}, PlaceLimits{.device = kAll},
                                    PlaceLimits{.device = kAll, .host = 0}}) {
    const FoundPlace found = Find(limits);
    EXPECT_TRUE(found.fits);
    EXPECT_EQ(found.place, AutoPlace());
    EXPECT_EQ(found.cost.device, kAll);
  }
}

// Whatever budget there is, it is kept, and one slab less does not keep it.
TEST(FindPlace, FitsAndIsTheLeastThatDoes) {
  for (const Tier update : {kDevice, kHost}) {
    for (int64_t device = kAll; device >= kLeast; --device) {
      const FoundPlace found = Find({.device = device, .updates = {update}});
      ASSERT_TRUE(found.fits) << device;
      EXPECT_LE(found.cost.device, device);
      EXPECT_EQ(found.cost.device, CostOf(found.place)->device);
      EXPECT_EQ(found.resident.device, kAll);
      const std::optional<AutoPlace> less = OneLess(found.place);
      if (less) {
        EXPECT_GT(CostOf(*less)->device, device)
            << ToString(found.place) << ", but so would " << ToString(*less);
      }
      // State goes first, weights when all gradients are there.
      if (found.place.gradients > 0) {
        EXPECT_EQ(found.place.state, 1);
      }
      if (found.place.weights > 0) {
        EXPECT_EQ(found.place.gradients, 1);
        EXPECT_EQ(found.place.activations, 1);
      }
      // Embedding and head only where blocks are not enough.
      AutoPlace blocks{
          .state = 1, .gradients = 1, .weights = 1, .activations = 1};
      blocks.update = update;
      EXPECT_EQ(found.place.ends > 0, CostOf(blocks)->device > device);
    }
  }
}

TEST(FindPlace, TakesTheUpdateOfTheShorterStep) {
  const FoundPlace found = Find({.device = kAll - 500});
  EXPECT_EQ(found.place.update, kHost);
  ASSERT_TRUE(found.elsewhere.has_value());
  EXPECT_GT(found.elsewhere->seconds, found.cost.seconds);
  // There is no room for it.
  const int64_t host = found.cost.host - 1;
  const FoundPlace here = Find({.device = kAll - 500, .host = host});
  EXPECT_TRUE(here.fits);
  EXPECT_EQ(here.place.update, kDevice);
  EXPECT_FALSE(here.elsewhere.has_value());
  EXPECT_EQ(Find({.device = kAll - 500, .updates = {kDevice}}).place,
            here.place);
}

TEST(FindPlace, SaysWhatIsTheLeastWhereNothingFits) {
  const FoundPlace device = Find({.device = kLeast - 1});
  EXPECT_FALSE(device.fits);
  EXPECT_EQ(device.cost.device, kLeast);
  const FoundPlace host = Find({.device = kLeast, .host = 10});
  EXPECT_FALSE(host.fits);
  EXPECT_EQ(host.cost.device, kLeast);
  EXPECT_EQ(host.place.update, kDevice);
  EXPECT_GT(host.cost.host, 10);
}

// A level whose copies take more than it frees is passed over.
TEST(FindPlace, LeavesOutWhatFreesNothing) {
  const auto cost = [](const AutoPlace& at) -> absl::StatusOr<PlaceCost> {
    return PlaceCost{.device = 1000 + static_cast<int64_t>(100 * at.gradients -
                                                           100 * at.weights)};
  };
  const auto found = FindPlace({.device = 900}, kSlabs, cost);
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->fits);
  EXPECT_EQ(found->place.gradients, 0);
  EXPECT_EQ(found->place.weights, 1);
}

TEST(FindPlace, HandsErrorsUp) {
  const auto fails = [](const AutoPlace& at) -> absl::StatusOr<PlaceCost> {
    if (at.state > 0) return absl::InternalError("no");
    return PlaceCost{.device = 2};
  };
  EXPECT_EQ(FindPlace({.device = 1}, kSlabs, fails).status(),
            absl::InternalError("no"));
}

TEST(FindPlace, HasWords) {
  EXPECT_EQ(ToString(AutoPlace()),
            "all that is left open on the device, and the device updates");
  EXPECT_EQ(ToString(AutoPlace{.update = kHost}),
            "all that is left open on the device, and the host updates");
  EXPECT_EQ(ToString(AutoPlace{.ends = 1}),
            "state of embedding and head at home on the host, updated by the "
            "device");
  EXPECT_EQ(ToString(AutoPlace{
                .state = 1, .gradients = 0.25, .ends = 1, .update = kHost}),
            "state of 100%, gradients of 25% of the blocks, and state of "
            "embedding and head at home on the host, which updates them");
}

}  // namespace
}  // namespace delink
