#include "data/loader/blend.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "framework/base/at.h"
#include "framework/base/rng.h"

namespace delink::blend_test {
namespace {

// Random numbers by the name of what they are for.
class Draw {
 public:
  explicit Draw(uint64_t trial) : key_(Fold(KeyFromSeed(11), trial)) {}
  int64_t Int(int64_t low, int64_t high) {
    const uint64_t word = Philox(key_, count_++, 0)[0];
    return low +
           static_cast<int64_t>(word % static_cast<uint64_t>(high - low + 1));
  }

 private:
  RngKey key_;
  uint64_t count_ = 0;
};

// Of all sizes, so that some sources come once in a thousand samples; now and
// then 0, but not all.
std::vector<double> RandomWeights(Draw& draw, size_t sources) {
  std::vector<double> weights;
  for (size_t i = 0; i < sources; ++i) {
    const auto part = static_cast<double>(draw.Int(1, 999));
    weights.push_back(
        draw.Int(0, 7) == 0 ? 0 : part * std::pow(10, draw.Int(-3, 3)));
  }
  At(weights, draw.Int(0, static_cast<int64_t>(sources) - 1)) = 5;
  return weights;
}

std::vector<BlendSource> Endless(const std::vector<double>& weights) {
  std::vector<BlendSource> sources;
  for (const double weight : weights) {
    sources.push_back({.epoch = 1 << 20, .weight = weight});
  }
  return sources;
}

// What was drawn, counted apart from the blend.
class Count {
 public:
  explicit Count(size_t sources) : drawn_(sources), since_(sources) {}

  // Samples of each source come one after the other, however it is mixed.
  void Add(const Blend::Draw& draw) {
    ASSERT_LT(draw.source, drawn_.size());
    ASSERT_EQ(draw.sample, drawn_[draw.source]);
    ++drawn_[draw.source];
    ++since_[draw.source];
    ++samples_;
  }
  void BeginAnew() {
    since_.assign(since_.size(), 0);
    samples_ = 0;
  }
  // Each source has its part of the samples, give or take less than one.
  void ExpectClose(const std::vector<double>& weights) const {
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (size_t i = 0; i < weights.size(); ++i) {
      const double wanted = static_cast<double>(samples_) * weights[i] / sum;
      ASSERT_LT(std::abs(static_cast<double>(since_[i]) - wanted), 1)
          << "source " << i << " after " << samples_;
    }
  }
  int64_t operator[](size_t i) const { return drawn_[i]; }

 private:
  std::vector<int64_t> drawn_, since_;
  int64_t samples_ = 0;
};

TEST(Blend, CountsAreWithinOneSampleOfTheWeightsAtEveryMoment) {
  for (uint64_t trial = 0; trial < 300; ++trial) {
    Draw draw(trial);
    const auto sources = static_cast<size_t>(draw.Int(1, 12));
    const std::vector<double> weights = RandomWeights(draw, sources);
    Blend blend(Endless(weights));
    Count count(sources);
    for (int64_t k = 0; k < 1000; ++k) {
      count.Add(blend.Next());
      count.ExpectClose(weights);
    }
  }
}

// The source that lags most, again and again, would be 1.36 samples off here.
TEST(Blend, CountsAreWithinOneSampleOfHardWeights) {
  const std::vector<double> weights = {1, 1, 100, 100, 5, 1, 3, 100, 5, 1};
  Blend blend(Endless(weights));
  Count count(weights.size());
  for (int64_t k = 0; k < 3170; ++k) {
    count.Add(blend.Next());
    count.ExpectClose(weights);
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    EXPECT_EQ(count[i], static_cast<int64_t>(10 * weights[i]));
  }
}

TEST(Blend, EqualSourcesComeInTurn) {
  Blend blend(Endless({3, 3, 3}));
  for (size_t k = 0; k < 30; ++k) EXPECT_EQ(blend.Next().source, k % 3);
}

TEST(Blend, ChangedWeightsTakeEffectAtOnceAndMakeUpForNothing) {
  for (uint64_t trial = 0; trial < 100; ++trial) {
    Draw draw(trial);
    const auto sources = static_cast<size_t>(draw.Int(2, 8));
    std::vector<double> weights = RandomWeights(draw, sources);
    Blend blend(Endless(weights));
    Count count(sources);
    for (int change = 0; change < 6; ++change) {
      for (int64_t k = draw.Int(0, 300); k > 0; --k) {
        count.Add(blend.Next());
        count.ExpectClose(weights);
      }
      weights = RandomWeights(draw, sources);
      blend.SetWeights(weights);
      count.BeginAnew();
    }
  }
}

TEST(Blend, TheSameProportionsAreNoChange) {
  Blend straight(Endless({1, 2, 4}));
  Blend scaled(Endless({1, 2, 4}));
  for (int64_t k = 0; k < 100; ++k) {
    ASSERT_EQ(straight.Next(), scaled.Next());
    if (k % 3 == 0) scaled.SetWeights({3, 6, 12});
    if (k % 7 == 0) scaled.SetWeights({0.5, 1, 2});
  }
}

// What a checkpoint keeps is all that the next samples depend on.
TEST(Blend, GoesOnFromItsCounts) {
  for (uint64_t trial = 0; trial < 100; ++trial) {
    Draw draw(trial);
    const auto count = static_cast<size_t>(draw.Int(1, 6));
    std::vector<BlendSource> sources = Endless(RandomWeights(draw, count));
    for (BlendSource& source : sources) {
      source.epoch = draw.Int(1, 200);
      source.repeat = draw.Int(0, 1) == 0;
    }
    Blend straight(sources);
    Blend stopped(sources);
    for (int part = 0; part < 8; ++part) {
      if (part == 4) {
        const std::vector<double> weights = RandomWeights(draw, count);
        straight.SetWeights(weights);
        stopped.SetWeights(weights);
      }
      for (int64_t k = draw.Int(1, 60); k > 0 && straight.Has(1); --k) {
        ASSERT_EQ(stopped.Next(), straight.Next());
      }
      ASSERT_EQ(stopped, straight);
      stopped = Blend(stopped.sources());
      ASSERT_EQ(stopped, straight);
    }
  }
}

TEST(Blend, ASourceThatEndsLeavesTheOthersTheirProportions) {
  std::vector<BlendSource> sources = Endless({5, 1, 2});
  sources[0] = {.epoch = 50, .repeat = false, .weight = 5};
  Blend blend(sources);
  Count count(3);
  while (count[0] < 50) {
    count.Add(blend.Next());
    count.ExpectClose({5, 1, 2});
  }
  EXPECT_TRUE(blend.sources()[0].ended());
  count.BeginAnew();
  for (int64_t k = 0; k < 300; ++k) {
    count.Add(blend.Next());
    count.ExpectClose({0, 1, 2});
  }
  EXPECT_EQ(count[0], 50);
  EXPECT_TRUE(blend.Has(1 << 30));
}

TEST(Blend, EndsWithItsLastSource) {
  std::vector<BlendSource> sources(3);
  for (size_t i = 0; i < 3; ++i) {
    sources[i] = {.epoch = 10 * (static_cast<int64_t>(i) + 1),
                  .repeat = false,
                  .weight = 1};
  }
  sources.push_back({.epoch = 7, .repeat = false, .weight = 0});
  Blend blend(sources);
  Count count(4);
  for (int64_t k = 0; k < 60; ++k) {
    ASSERT_TRUE(blend.Has(60 - k));
    ASSERT_FALSE(blend.Has(61 - k));
    count.Add(blend.Next());
  }
  EXPECT_FALSE(blend.Has(1));
  EXPECT_EQ(count[2], 30);
  // Another blend may have what this one left out.
  blend.SetWeights({1, 1, 1, 1});
  EXPECT_TRUE(blend.Has(7));
  EXPECT_FALSE(blend.Has(8));
  EXPECT_EQ(blend.Next(), (Blend::Draw{.source = 3, .sample = 0}));
}

TEST(Blend, EndlessLooksPastTheEnd) {
  Blend blend({{.epoch = 4, .repeat = false, .weight = 1}});
  blend.Skip(3);
  Blend endless = blend.Endless();
  EXPECT_EQ(endless.Next().sample, 3);
  EXPECT_EQ(endless.Next().sample, 4);
  blend.Skip(1);
  endless = blend.Endless();
  EXPECT_EQ(endless.Next().sample, 4);
}

}  // namespace
}  // namespace delink::blend_test
