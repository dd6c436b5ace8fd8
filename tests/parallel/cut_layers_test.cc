#include "parallel/pipeline/cut_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace delink::cut_layers_test {
namespace {

using ::testing::ElementsAre;

TEST(CutByBlocks, EndsHaveTheEmbeddingAndTheHeadBesides) {
  const std::vector<int64_t> even = {2, 1}, bare = {0, 2, 0}, one = {3};
  EXPECT_THAT(CutByBlocks(even), ElementsAre(0, 0, 0, 1, 1));
  EXPECT_THAT(CutByBlocks(bare), ElementsAre(0, 1, 1, 2));
  EXPECT_THAT(CutByBlocks(one), ElementsAre(0, 0, 0, 0, 0));
}

TEST(CutByCost, OfAsGoodCutsTheOneWithMoreInFront) {
  const std::vector<double> alike = {1, 1, 1, 1, 1};
  EXPECT_THAT(CutByCost(alike, 1), ElementsAre(0, 0, 0, 0, 0));
  EXPECT_THAT(CutByCost(alike, 2), ElementsAre(0, 0, 0, 1, 1));
  EXPECT_THAT(CutByCost(alike, 3), ElementsAre(0, 0, 1, 1, 2));
  EXPECT_THAT(CutByCost(alike, 5), ElementsAre(0, 1, 2, 3, 4));
}

// Embedding, six blocks and a head that costs as much as five of them.
TEST(CutByCost, AHeadWeighsAsMuchAsItComputes) {
  const std::vector<double> costs = {0, 2e9, 2e9, 2e9, 2e9, 2e9, 2e9, 10e9};
  EXPECT_THAT(CutByCost(costs, 2), ElementsAre(0, 0, 0, 0, 0, 0, 0, 1));
  // What is before the head is even, though the head alone decides.
  EXPECT_THAT(CutByCost(costs, 4), ElementsAre(0, 0, 0, 1, 1, 2, 2, 3));
}

double Largest(const std::vector<double>& costs,
               const std::vector<int>& chunks) {
  std::vector<double> sums(costs.size(), 0);
  for (size_t i = 0; i < costs.size(); ++i) {
    sums[static_cast<size_t>(chunks[i])] += costs[i];
  }
  return *std::max_element(sums.begin(), sums.end());
}

// Every way to cut, by the layers that begin a chunk.
double Least(const std::vector<double>& costs, int count) {
  double least = std::accumulate(costs.begin(), costs.end(), 0.0);
  const auto layers = static_cast<int>(costs.size());
  for (unsigned begins = 0; begins < 1U << (layers - 1); ++begins) {
    std::vector<int> chunks = {0};
    for (int i = 1; i < layers; ++i) {
      chunks.push_back(chunks.back() +
                       static_cast<int>(begins >> (i - 1) & 1U));
    }
    if (chunks.back() + 1 == count) {
      least = std::min(least, Largest(costs, chunks));
    }
  }
  return least;
}

TEST(CutByCost, TheLargestChunkIsAsSmallAsCanBe) {
  std::mt19937_64 random(1);
  for (int n = 0; n < 500; ++n) {
    std::vector<double> costs(2 + random() % 8);
    for (double& cost : costs) cost = static_cast<double>(random() % 9);
    costs[random() % costs.size()] += 1;
    const auto chunks = static_cast<int>(1 + random() % costs.size());
    const std::vector<int> cut = CutByCost(costs, chunks);
    ASSERT_EQ(cut.size(), costs.size());
    EXPECT_EQ(cut.front(), 0);
    EXPECT_EQ(cut.back(), chunks - 1);
    for (size_t i = 1; i < cut.size(); ++i) {
      EXPECT_TRUE(cut[i] == cut[i - 1] || cut[i] == cut[i - 1] + 1);
    }
    EXPECT_EQ(Largest(costs, cut), Least(costs, chunks));
  }
}

}  // namespace
}  // namespace delink::cut_layers_test
