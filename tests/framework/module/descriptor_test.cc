#include "framework/module/descriptor.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace delink {
namespace {

// A slab of one tensor, somewhere in it.
struct Place {
  LogicalTensor tensor;
  Slab slab;
};

Place RandomPlace(std::mt19937_64& random, int64_t elements, int slab) {
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  Place place;
  place.tensor = {.name = "w", .shape = {elements}, .slab = slab};
  place.tensor.offset = below(2000);
  place.slab.elements = place.tensor.offset + elements + below(2000);
  place.slab.block = int64_t{1} << (4 + below(6));
  return place;
}

TEST(DescriptorTest, WholePlanesAreOnEveryRank) {
  const LogicalTensor tensor{
      .name = "w", .shape = {3, 5}, .slab = 2, .offset = 64};
  const Slab slab{.elements = 128, .block = 16};
  const Descriptor descriptor = DescriptorOf(tensor, slab, 4, false);
  ASSERT_EQ(descriptor.extents.size(), 1u);
  EXPECT_EQ(descriptor.extents[0], (Extent{.begin = 0,
                                           .count = 15,
                                           .rank = kEveryRank,
                                           .slab = 2,
                                           .offset = 64}));
}

TEST(DescriptorTest, ShardsCutTensors) {
  // 8 blocks of 16 over 3 ranks: shards of 48.
  const LogicalTensor tensor{
      .name = "w", .shape = {60}, .slab = 1, .offset = 40};
  const Slab slab{.elements = 128, .block = 16};
  const Descriptor descriptor = DescriptorOf(tensor, slab, 3, true);
  const std::vector<Extent> expected = {
      {.begin = 0, .count = 8, .rank = 0, .slab = 1, .offset = 40},
      {.begin = 8, .count = 48, .rank = 1, .slab = 1, .offset = 48},
      {.begin = 56, .count = 4, .rank = 2, .slab = 1, .offset = 96}};
  EXPECT_EQ(descriptor.extents, expected);
}

// Random tensors, slabs and ranks: every element lies in exactly one extent,
// with its owner.
TEST(DescriptorTest, EveryElementOnce) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 2000; ++trial) {
    const auto elements = static_cast<int64_t>(random() % 5000 + 1);
    const Place place = RandomPlace(random, elements, trial);
    const int ranks = static_cast<int>(random() % 9 + 1);
    const Descriptor descriptor =
        DescriptorOf(place.tensor, place.slab, ranks, true);
    int64_t at = 0;
    for (const Extent& extent : descriptor.extents) {
      ASSERT_EQ(extent.begin, at);
      ASSERT_GT(extent.count, 0);
      ASSERT_EQ(extent.offset, place.tensor.offset + at);
      const Range owned = ShardRange(place.slab, extent.rank, ranks);
      ASSERT_GE(extent.offset, owned.begin);
      ASSERT_LE(extent.offset + extent.count, owned.end);
      at += extent.count;
    }
    ASSERT_EQ(at, elements);
  }
}

// Carries numbered elements by the plan and finds each where `to` wants it.
TEST(DescriptorTest, PlansBringEveryElementHome) {
  std::mt19937_64 random(2);
  for (int trial = 0; trial < 2000; ++trial) {
    const auto elements = static_cast<int64_t>(random() % 5000 + 1);
    const Place before = RandomPlace(random, elements, 3);
    const Place after = RandomPlace(random, elements, 8);
    const int from_ranks = static_cast<int>(random() % 9 + 1);
    const int to_ranks = static_cast<int>(random() % 9 + 1);
    const Descriptor from =
        DescriptorOf(before.tensor, before.slab, from_ranks, random() % 4 != 0);
    const Descriptor to =
        DescriptorOf(after.tensor, after.slab, to_ranks, random() % 4 != 0);
    const std::vector<CopyStep> plan = PlanCopy(from, to);
    ASSERT_LE(plan.size(), from.extents.size() + to.extents.size() - 1);
    int64_t at = 0;
    for (const CopyStep& step : plan) {
      ASSERT_EQ(step.begin, at);
      ASSERT_GT(step.count, 0);
      ASSERT_EQ(step.from_slab, 3);
      ASSERT_EQ(step.to_slab, 8);
      ASSERT_EQ(step.from_offset, before.tensor.offset + at);
      ASSERT_EQ(step.to_offset, after.tensor.offset + at);
      for (const auto& [extents, rank, ranks, slab] :
           {std::tuple{&from.extents, step.from_rank, from_ranks, &before.slab},
            std::tuple{&to.extents, step.to_rank, to_ranks, &after.slab}}) {
        if (rank == kEveryRank) {
          ASSERT_EQ(extents->size(), 1u);
          continue;
        }
        const int64_t offset =
            (slab == &before.slab ? before : after).tensor.offset + at;
        const Range owned = ShardRange(*slab, rank, ranks);
        ASSERT_TRUE(offset >= owned.begin && offset + step.count <= owned.end);
      }
      at += step.count;
    }
    ASSERT_EQ(at, elements);
  }
}

TEST(DescriptorTest, SameLayoutStaysWhereItIs) {
  std::mt19937_64 random(3);
  const Place place = RandomPlace(random, 3000, 0);
  const Descriptor here = DescriptorOf(place.tensor, place.slab, 4, true);
  const std::vector<CopyStep> plan = PlanCopy(here, here);
  EXPECT_EQ(plan.size(), here.extents.size());
  for (const CopyStep& step : plan) EXPECT_TRUE(step.local());
}

}  // namespace
}  // namespace delink
