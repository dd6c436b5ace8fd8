#include "recipes/saved/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "framework/base/at.h"
#include "tests/testing/numbers.h"

namespace delink::sampling_test {
namespace {

using Values = std::vector<double>;

double Sum(const Values& p) { return std::accumulate(p.begin(), p.end(), 0.0); }

int64_t Kept(const Values& p) {
  return std::count_if(p.begin(), p.end(), [](double v) { return v > 0; });
}

Values Softmax(const Values& logits, double temperature) {
  Values p;
  for (const double x : logits) p.push_back(std::exp(x / temperature));
  const double sum = Sum(p);
  for (double& v : p) v /= sum;
  return p;
}

TEST(Sampling, TemperatureIsASoftmax) {
  const Values logits = testing::Normals<double>("logits", 50);
  for (const double temperature : {0.3, 1.0, 4.0}) {
    const Values p =
        SamplingProbabilities(logits, {.temperature = temperature});
    const Values expected = Softmax(logits, temperature);
    for (size_t i = 0; i < p.size(); ++i) EXPECT_NEAR(p[i], expected[i], 1e-14);
  }
}

TEST(Sampling, ZeroTemperatureTakesTheFirstOfTheLikeliest) {
  const Values logits = {1, 3, -2, 3, 0};
  EXPECT_EQ(SamplingProbabilities(logits, {.temperature = 0}),
            (Values{0, 1, 0, 0, 0}));
  for (uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(SampleToken(logits, {.temperature = 0}, KeyFromSeed(1), i), 1);
  }
}

TEST(Sampling, TopKKeepsExactlyTheLikeliest) {
  const Values logits = testing::Normals<double>("logits", 97);
  const Values all = Softmax(logits, 1.0);
  for (const int64_t k : {1, 2, 40, 97, 1000}) {
    const Values p = SamplingProbabilities(logits, {.top_k = k});
    EXPECT_EQ(Kept(p), std::min<int64_t>(k, 97));
    EXPECT_NEAR(Sum(p), 1, 1e-12);
    double least_kept = 1, most_dropped = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      if (p[i] > 0) least_kept = std::min(least_kept, all[i]);
      if (p[i] == 0) most_dropped = std::max(most_dropped, all[i]);
    }
    EXPECT_GT(least_kept, most_dropped);
  }
  // Ties: still exactly k, the first ones.
  EXPECT_EQ(SamplingProbabilities(Values(4, 0.5), {.top_k = 2}),
            (Values{0.5, 0.5, 0, 0}));
}

TEST(Sampling, TopPKeepsTheSmallestSetThatReachesP) {
  const Values logits = testing::Normals<double>("logits", 97, 2.0);
  const Values all = Softmax(logits, 1.0);
  for (const double top_p : {1e-9, 0.1, 0.5, 0.9, 0.999}) {
    const Values p = SamplingProbabilities(logits, {.top_p = top_p});
    double reached = 0, least = 1;
    for (size_t i = 0; i < p.size(); ++i) {
      if (p[i] == 0) continue;
      reached += all[i];
      least = std::min(least, all[i]);
    }
    EXPECT_GE(reached, top_p);
    EXPECT_LT(reached - least, top_p);
    for (size_t i = 0; i < p.size(); ++i) {
      if (p[i] > 0) {
        EXPECT_NEAR(p[i], all[i] / reached, 1e-12);
      }
    }
  }
  EXPECT_EQ(Kept(SamplingProbabilities(logits, {.top_p = 1.0})), 97);
}

TEST(Sampling, TopPCountsAmongTheTopK) {
  // Softmax over the two likeliest is (0.73, 0.27).
  EXPECT_EQ(Kept(SamplingProbabilities(Values{2, 1, 0, 0, 0, 0, 0, 0},
                                       {.top_k = 2, .top_p = 0.7})),
            1);
}

TEST(Sampling, DrawsFollowTheDistribution) {
  const Values logits = {0.0, 1.0, -1.0, 0.5, -30.0};
  const SamplingOptions options{.top_k = 3};
  const Values p = SamplingProbabilities(logits, options);
  constexpr int kDraws = 20'000;
  Values seen(p.size(), 0.0);
  for (uint64_t i = 0; i < kDraws; ++i) {
    const int32_t token = SampleToken(logits, options, KeyFromSeed(3), i);
    EXPECT_EQ(token, SampleToken(logits, options, KeyFromSeed(3), i));
    At(seen, token) += 1;
  }
  for (size_t i = 0; i < p.size(); ++i) {
    EXPECT_NEAR(seen[i] / kDraws, p[i],
                5 * std::sqrt(p[i] * (1 - p[i]) / kDraws));
  }
}

}  // namespace
}  // namespace delink::sampling_test
