#include "framework/sharing/switch_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "framework/base/rng.h"

namespace delink::switch_policy_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double Noise(int64_t step) {
  return Normal(Fold(KeyFromSeed(5), "noise"), static_cast<uint64_t>(step));
}

// 2 nats that stay and 3 that decay, and noise.
struct Decay {
  double ratio = std::exp(-1.0 / 200);
  double noise = 0;
  double operator()(int64_t step) const {
    return 2 + 3 * std::pow(ratio, static_cast<double>(step)) +
           noise * Noise(step);
  }
};

// The step after which a policy fed with these losses is due; 0: never.
template <typename Loss>
int64_t DueAt(SwitchPolicy policy, const Loss& loss, int64_t steps) {
  for (int64_t step = 1; step <= steps; ++step) {
    policy.AddLoss(loss(step));
    if (policy.Due().has_value()) return step;
  }
  return 0;
}

// The textbook's formula for the slope, (n Sxy - Sx Sy) / (n Sxx - Sx Sx),
// over all windows.
template <typename Loss>
int64_t DueByTextbook(const Loss& loss, int64_t window, double plateau,
                      int64_t steps) {
  for (int64_t last = window; last <= steps; ++last) {
    long double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
    for (int64_t step = last - window + 1; step <= last; ++step) {
      const auto x = static_cast<long double>(step);
      const long double y = loss(step);
      n += 1, sx += x, sy += y, sxx += x * x, sxy += x * y;
    }
    const long double slope = (n * sxy - sx * sy) / (n * sxx - sx * sx);
    if (-slope * static_cast<long double>(window) < plateau) return last;
  }
  return 0;
}

TEST(Plateau, OfALineIsWhatItFallsInAWindow) {
  const auto line = [](int64_t step) {
    return 5 - 0.001 * static_cast<double>(step);
  };
  // Falls by 0.1 a window: due with the first full window, or never.
  EXPECT_EQ(DueAt(SwitchPolicy({.plateau = 0.101}), line, 1000), 100);
  EXPECT_EQ(DueAt(SwitchPolicy({.plateau = 0.099}), line, 1000), 0);
  EXPECT_EQ(DueAt(SwitchPolicy({.plateau = 0.0101, .window = 10}), line, 1000),
            10);
}

TEST(Plateau, OfADecayIsWhereTheTextbookSays) {
  for (const double noise : {0.0, 0.001, 0.02, 0.1}) {
    for (const int64_t window : {2, 10, 100, 400}) {
      const Decay loss{.noise = noise};
      EXPECT_EQ(
          DueAt(SwitchPolicy({.plateau = 0.05, .window = window}), loss, 3000),
          DueByTextbook(loss, window, 0.05, 3000))
          << noise << ", window " << window;
    }
  }
  // A window that averages the noise out is not fooled by it.
  const double plateau = 0.1;
  const int64_t quiet =
      DueAt(SwitchPolicy({.plateau = plateau, .window = 400}), Decay(), 3000);
  const int64_t noisy = DueAt(SwitchPolicy({.plateau = plateau, .window = 400}),
                              Decay{.noise = 0.1}, 3000);
  EXPECT_GT(quiet, 600);
  EXPECT_NEAR(static_cast<double>(noisy), static_cast<double>(quiet), 100);
}

TEST(Plateau, SaysWhy) {
  SwitchPolicy policy({.plateau = 0.5, .window = 4});
  for (const double loss : {3.0, 2.9, 2.8}) policy.AddLoss(loss);
  EXPECT_EQ(policy.Due(), std::nullopt);
  EXPECT_EQ(policy.Fall(), std::nullopt);
  policy.AddLoss(2.7);
  EXPECT_THAT(policy.Due(), Optional(HasSubstr("the loss fell by 0.4 nats over "
                                               "the last 4 steps")));
  for (const double loss : {3.0, 3.1, 3.2, 3.3}) policy.AddLoss(loss);
  EXPECT_THAT(policy.Due(), Optional(HasSubstr("rose by 0.4")));
}

TEST(Plateau, LeavesOutWhatIsNotFinite) {
  SwitchPolicy with({.plateau = 0.05, .window = 10});
  SwitchPolicy without({.plateau = 0.05, .window = 10});
  const Decay loss;
  for (int64_t step = 1; step <= 50; ++step) {
    if (step % 7 == 0) with.AddLoss(step % 2 == 0 ? kNaN : INFINITY);
    with.AddLoss(loss(step));
    without.AddLoss(loss(step));
  }
  EXPECT_EQ(with.history(), without.history());
}

// n layers agree as 1 + (n - 1) d^step says.
Agreement AgreementAt(int64_t step) {
  const double apart = 1 + 0.3 * std::sin(static_cast<double>(step));
  return {.together = apart * (1 + 11 * std::exp(-step / 300.0)),
          .apart = apart};
}

int64_t DueAtProbe(SwitchPolicy policy, int64_t every, int64_t steps) {
  for (int64_t step = 1; step <= steps; ++step) {
    policy.AddLoss(2);
    if (step % every == 0) policy.AddProbe(step, AgreementAt(step));
    if (policy.Due().has_value()) return step;
  }
  return 0;
}

TEST(Gradient, IsTheMeanOfTheAgreementsOverTheWindow) {
  for (const double threshold : {6.0, 2.0, 1.1}) {
    for (const int64_t every : {1, 10, 25}) {
      int64_t expected = 0;
      for (int64_t last = 100; expected == 0; last += every) {
        double sum = 0, count = 0;
        for (int64_t step = last; step > last - 100; step -= every) {
          sum += AgreementAt(step).together / AgreementAt(step).apart;
          count += 1;
        }
        if (sum / count <= threshold) expected = last;
      }
      EXPECT_EQ(DueAtProbe(SwitchPolicy({.gradient = threshold}), every, 5000),
                expected)
          << threshold << ", every " << every;
    }
  }
}

TEST(Gradient, WaitsForAFullWindow) {
  EXPECT_EQ(DueAtProbe(SwitchPolicy({.gradient = 13}), 1, 500), 100);
  EXPECT_EQ(DueAtProbe(SwitchPolicy({.gradient = 13, .window = 30}), 7, 500),
            30);
}

// A probe whose gradients are large, or small, counts as the others do.
TEST(Gradient, OneSpikeDoesNotDecide) {
  for (const double spike : {1e-6, 1.0, 1e6}) {
    SwitchPolicy policy({.gradient = 2.6, .window = 50});
    for (int64_t step = 1; step <= 50; ++step) {
      policy.AddLoss(2);
      if (step % 5 != 0) continue;
      const double apart = step == 30 ? spike : 1;
      const double agreement = step == 30 ? 1.5 : 2.9;
      policy.AddProbe(step, {.together = agreement * apart, .apart = apart});
    }
    EXPECT_THAT(policy.Ratio(), Optional(::testing::DoubleEq(2.76))) << spike;
    EXPECT_EQ(policy.Due(), std::nullopt) << spike;
  }
}

TEST(Gradient, WaitsForThreeProbesHoweverRare) {
  SwitchPolicy policy({.gradient = 1.5, .window = 10});
  for (int step = 0; step < 10; ++step) policy.AddLoss(2);
  policy.AddProbe(100, {.together = 1, .apart = 1});
  policy.AddProbe(200, {.together = 1, .apart = 1});
  EXPECT_EQ(policy.Due(), std::nullopt);
  policy.AddProbe(300, {.together = 2, .apart = 1});
  EXPECT_THAT(policy.Ratio(), Optional(::testing::DoubleEq(4.0 / 3)));
  EXPECT_THAT(policy.Due(), Optional(HasSubstr("agree to 1.33 in the mean of "
                                               "the last 3 probes")));
  policy.AddProbe(400, {.together = 3, .apart = 1});
  EXPECT_EQ(policy.history().probes.size(), 3u);
  EXPECT_EQ(policy.Due(), std::nullopt);
}

TEST(Gradient, LeavesOutWhatSaysNothing) {
  SwitchPolicy policy({.gradient = 1.5, .window = 5});
  for (int64_t step = 1; step <= 5; ++step) {
    policy.AddLoss(2);
    policy.AddProbe(step, {});
  }
  EXPECT_EQ(policy.Due(), std::nullopt) << "zero gradients agree with nothing";
  policy.AddProbe(6, {.together = kNaN, .apart = 1});
  policy.AddProbe(7, {.together = 1, .apart = INFINITY});
  EXPECT_EQ(policy.history().probes.size(), 5u);
}

TEST(SwitchPolicy, WithoutAQuestionIsNeverDue) {
  SwitchPolicy policy({});
  EXPECT_FALSE(policy.asked());
  EXPECT_FALSE(policy.asks_probes());
  EXPECT_EQ(DueAt(
                policy, [](int64_t) { return 2.0; }, 300),
            0);
  EXPECT_EQ(DueAtProbe(policy, 10, 5000), 0);
  EXPECT_TRUE(SwitchPolicy({.plateau = 1}).asked());
  EXPECT_TRUE(SwitchPolicy({.gradient = 1}).asks_probes());
}

// Either question suffices.
TEST(SwitchPolicy, IsDueByWhicheverComesFirst) {
  const auto run = [](const SwitchPolicyConfig& config) {
    SwitchPolicy policy(config);
    for (int64_t step = 1; step < 3000; ++step) {
      policy.AddLoss(Decay()(step));
      if (step % 10 == 0) policy.AddProbe(step, AgreementAt(step));
      if (policy.Due().has_value()) return std::pair(step, *policy.Due());
    }
    return std::pair(int64_t{0}, std::string());
  };
  const auto loss = run({.plateau = 0.1});
  const auto late = run({.gradient = 1.1});
  ASSERT_GT(loss.first, 100);
  ASSERT_GT(late.first, loss.first);
  EXPECT_EQ(run({.plateau = 0.1, .gradient = 1.1}), loss);
  EXPECT_EQ(run({.plateau = 0.001, .gradient = 6}), run({.gradient = 6}));
}

// Saved and made again at any step: the same policy.
TEST(SwitchPolicy, GoesOnFromItsHistory) {
  const SwitchPolicyConfig config = {
      .plateau = 0.03, .gradient = 1.3, .window = 60};
  for (const int64_t stop : {1, 30, 60, 61, 100, 400}) {
    SwitchPolicy straight(config), resumed(config);
    for (int64_t step = 1; step <= 1000; ++step) {
      for (SwitchPolicy* policy : {&straight, &resumed}) {
        policy->AddLoss(Decay{.noise = 0.01}(step));
        if (step % 20 == 0) policy->AddProbe(step, AgreementAt(step));
      }
      if (step == stop) resumed = SwitchPolicy(config, resumed.history());
      ASSERT_EQ(straight.Due(), resumed.Due()) << step;
      ASSERT_EQ(straight.history(), resumed.history()) << step;
    }
    EXPECT_TRUE(straight.Due().has_value());
  }
}

TEST(SwitchPolicy, CutsAHistoryThatIsTooLong) {
  SwitchPolicy wide({.plateau = 0.1, .gradient = 1.3, .window = 500});
  SwitchPolicy narrow({.plateau = 0.1, .gradient = 1.3, .window = 50});
  for (int64_t step = 1; step <= 300; ++step) {
    for (SwitchPolicy* policy : {&wide, &narrow}) {
      policy->AddLoss(Decay()(step));
      if (step % 10 == 0) policy->AddProbe(step, AgreementAt(step));
    }
  }
  EXPECT_EQ(wide.history().losses.size(), 300u);
  const SwitchPolicy cut({.plateau = 0.1, .gradient = 1.3, .window = 50},
                         wide.history());
  EXPECT_EQ(cut.history(), narrow.history());
  EXPECT_EQ(cut.Due(), narrow.Due());
}

}  // namespace
}  // namespace delink::switch_policy_test
