#include "offload/plan/find_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace delink::find_place_test {
namespace {

constexpr Tier kDevice = Tier::kDevice, kHost = Tier::kHost;
constexpr int64_t kSlabs = 8;
constexpr int64_t kWeights = 20, kGradients = 40, kState = 120, kRest = 100;
constexpr int64_t kActivations = 50;
// Of the copies that a set has on the device, once any of it is on the host.
constexpr int64_t kCopies = 30;
constexpr double kAgain = 0.04;  // seconds of a block that is made again

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
  add(at.activations * (1 - at.recompute), kActivations);
  // Made again, they need no copies, and of the host nothing.
  const auto again =
      static_cast<int64_t>(at.activations * at.recompute * kSlabs + 0.5);
  cost.device -= again * kActivations;
  cost.seconds += static_cast<double>(again) * kAgain;
  add(at.weights, kWeights);
  cost.device += at.ends > 0 ? 0 : 60;
  cost.host += at.ends > 0 ? 60 : 0;
  cost.device += (at.ahead - 1) * 100;
  if (at.host_updates > 0) {
    cost.host += at.state > 0 ? 100 : 0;
    cost.seconds -= at.state * at.host_updates / 10;
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

const int64_t kBare = CostOf({.state = 1,
                              .gradients = 1,
                              .weights = 1,
                              .activations = 1,
                              .ends = 1,
                              .ahead = 0})
                          ->device;

// With one slab less of one of the shares.
std::vector<AutoPlace> OneLess(const AutoPlace& at) {
  std::vector<AutoPlace> all;
  for (double AutoPlace::*share : {&AutoPlace::weights, &AutoPlace::activations,
                                   &AutoPlace::gradients, &AutoPlace::state}) {
    if (at.*share == 0) continue;
    all.push_back(at);
    all.back().*share -= 1.0 / kSlabs;
  }
  return all;
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

// Whatever budget there is, it is kept, and no more goes than must.
TEST(FindPlace, FitsAndIsTheLeastThatDoes) {
  for (const Tier update : {kDevice, kHost}) {
    for (int64_t device = kAll; device >= kLeast; --device) {
      const FoundPlace found = Find({.device = device, .updates = {update}});
      ASSERT_TRUE(found.fits) << device;
      EXPECT_LE(found.cost.device, device);
      EXPECT_EQ(found.cost.device, CostOf(found.place)->device);
      EXPECT_EQ(found.resident.device, kAll);
      // The rung on which it ended is the first that fits.
      const std::vector<AutoPlace> less = OneLess(found.place);
      EXPECT_TRUE(less.empty() ||
                  std::ranges::any_of(less,
                                      [&](const AutoPlace& at) {
                                        return CostOf(at)->device > device;
                                      }))
          << ToString(found.place);
      // State goes before gradients, weights when all else is there.
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
      blocks.host_updates = update == kHost ? 1 : 0;
      EXPECT_EQ(found.place.ends > 0, CostOf(blocks)->device > device);
    }
  }
}

TEST(FindPlace, TakesTheUpdateOfTheShorterStep) {
  const FoundPlace found = Find({.device = kAll - 500});
  EXPECT_EQ(found.place.host_updates, 1);
  ASSERT_TRUE(found.by_device.has_value() && found.by_host.has_value());
  EXPECT_GT(found.by_device->seconds, found.cost.seconds);
  EXPECT_EQ(found.by_host->seconds, found.cost.seconds);
  // There is no room for it.
  const int64_t host = found.cost.host - 1;
  const FoundPlace here = Find({.device = kAll - 500, .host = host});
  EXPECT_TRUE(here.fits);
  EXPECT_EQ(here.place.host_updates, 0);
  EXPECT_FALSE(here.by_host.has_value());
  EXPECT_EQ(Find({.device = kAll - 500, .updates = {kDevice}}).place,
            here.place);
}

TEST(FindPlace, PrefetchesNothingWhereOnlyThatFits) {
  for (const int64_t device : {kLeast - 1, kBare}) {
    const FoundPlace found = Find({.device = device});
    EXPECT_TRUE(found.fits);
    EXPECT_EQ(found.cost.device, kBare);
    EXPECT_EQ(found.place.ahead, 0);
  }
  EXPECT_EQ(Find({.device = kLeast}).place.ahead, 1);
}

TEST(FindPlace, SaysWhatIsTheLeastWhereNothingFits) {
  const FoundPlace device = Find({.device = kBare - 1});
  EXPECT_FALSE(device.fits);
  EXPECT_EQ(device.cost.device, kBare);
  const FoundPlace host = Find({.device = kLeast, .host = 10});
  EXPECT_FALSE(host.fits);
  EXPECT_EQ(host.cost.device, kLeast);
  EXPECT_EQ(host.place.host_updates, 0);
  EXPECT_GT(host.cost.host, 10);
}

// What goes costs its bytes, and what is made again its FLOPs: whichever makes
// the shorter step, or some of both.
TEST(FindPlace, WeighsBytesAgainstFlops) {
  // A byte that goes takes so long; a block has 50, and takes 1 made again.
  const auto find = [](double byte, double free_bytes, bool recompute) {
    const auto cost = [=](const AutoPlace& at) -> absl::StatusOr<PlaceCost> {
      const double away = at.activations * kSlabs;
      const double stored = away * (1 - at.recompute);
      return PlaceCost{
          .device = static_cast<int64_t>(1000 - 50 * away),
          .seconds = 10 + away - stored +
                     byte * std::max(0.0, 50 * stored - free_bytes)};
    };
    const absl::StatusOr<FoundPlace> found =
        FindPlace({.device = 700, .recompute = recompute}, kSlabs, cost);
    EXPECT_TRUE(found.ok() && found->fits);
    return found->place;
  };
  EXPECT_EQ(find(0.01, 0, true).recompute, 0);
  EXPECT_EQ(find(0.1, 0, true).recompute, 1);
  // Half of it hides.
  EXPECT_EQ(find(0.1, 150, true).recompute, 0.5);
  EXPECT_EQ(find(0.1, 0, false).recompute, 0);
  EXPECT_EQ(find(0.1, 0, true).activations, 0.75);
}

// Each side has time for some.
TEST(FindPlace, DividesUpdatesWhereThatIsSooner) {
  const auto find = [](double device, double host) {
    const auto cost = [=](const AutoPlace& at) -> absl::StatusOr<PlaceCost> {
      return PlaceCost{.device = at.state > 0 ? 1 : 2,
                       .seconds = 10 + std::max((1 - at.host_updates) * device,
                                                at.host_updates * host)};
    };
    return FindPlace({.device = 1}, kSlabs, cost)->place.host_updates;
  };
  EXPECT_EQ(find(4, 4), 0.5);
  EXPECT_EQ(find(9, 3), 0.75);
  EXPECT_EQ(find(3, 9), 0.25);
  EXPECT_EQ(find(100, 1), 1);
  EXPECT_EQ(find(1, 100), 0);
}

// Copies that come earlier take room, and are there where they are worth it.
TEST(FindPlace, ComesFurtherAheadWhereThatIsSooner) {
  const auto find = [](int64_t device, double gain) {
    const auto cost = [=](const AutoPlace& at) -> absl::StatusOr<PlaceCost> {
      return PlaceCost{.device = 100 * at.ahead,
                       .seconds = 10 - gain * (at.ahead - 1)};
    };
    return FindPlace({.device = device}, kSlabs, cost)->place.ahead;
  };
  EXPECT_EQ(find(1000, 1), 4);
  EXPECT_EQ(find(399, 1), 2);
  EXPECT_EQ(find(199, 1), 1);
  EXPECT_EQ(find(1000, 0.001), 1);
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
            "all \"auto\" planes device-resident, updated by the device");
  EXPECT_EQ(ToString(AutoPlace{.host_updates = 1}),
            "all \"auto\" planes device-resident, updated by the host");
  EXPECT_EQ(ToString(AutoPlace{.ends = 1}),
            "state of embedding and head host-resident, updated by the device");
  EXPECT_EQ(ToString(AutoPlace{
                .state = 1, .gradients = 0.25, .ends = 1, .host_updates = 1}),
            "state of 100%, gradients of 25% of the blocks, and state of "
            "embedding and head host-resident, updated by the host");
  EXPECT_EQ(ToString(AutoPlace{.state = 0.5,
                               .activations = 0.5,
                               .recompute = 0.5,
                               .host_updates = 0.75,
                               .ahead = 2}),
            "state of 50%, activations of 25% of the blocks host-resident, the "
            "host updates 75%, those needed last, 25% of the blocks recomputed "
            "in backward, 2 copies ahead");
  EXPECT_EQ(
      ToString(AutoPlace{.activations = 1, .recompute = 1}),
      "all \"auto\" planes device-resident, updated by the device, 100% of "
      "the blocks recomputed in backward");
}

}  // namespace
}  // namespace delink::find_place_test
