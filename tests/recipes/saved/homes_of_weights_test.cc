// Where a budget has the weights of those who use a checkpoint.
#include "offload/inference/homes_of_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>

#include "framework/device/backend.h"
#include "framework/module/param_store.h"
#include "offload/inference/streamed_weights.h"
#include "recipes/models/llama.h"

namespace delink::homes_of_weights_test {
namespace {

class HomesOfWeightsTest : public ::testing::TestWithParam<Layout::Options> {
 protected:
  HomesOfWeightsTest() {
    LlamaConfig c;
    c.layers = 8;
    c.vocab = 61;
    c.max_seq = 16;
    c.dim = 24;
    c.heads = c.kv_heads = 4;
    c.ffn = 40;
    model_ = BuildLlama(Scope(registry_), c);
  }
  Layout LayoutOf(const OffloadRules& rules) {
    const Layout layout =
        Layout::Create(registry_, model_->blocks(), {}, GetParam());
    return *WithHomesOfWeights(layout, rules, DType::kF32);
  }
  // Of the rank that has most.
  static int64_t DeviceBytes(const Layout& layout) {
    const auto device = NewMetaDevice();
    int64_t most = 0;
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      const auto store = *ParamStore::Create(
          *device, layout, rank, {.gradients = false, .states = {}});
      most = std::max(most, store->bytes(Plane::kWeight) +
                                StreamedWeights::BytesOf(*store));
    }
    return most;
  }
  static int OnHost(const Layout& layout) {
    int count = 0;
    for (const PlacementRow& row : layout.placement().rows) {
      count += row.weight.tier == Tier::kHost ? 1 : 0;
    }
    return count;
  }

  ParamRegistry registry_;
  std::unique_ptr<Sequential> model_;
};
INSTANTIATE_TEST_SUITE_P(
    Layouts, HomesOfWeightsTest,
    ::testing::Values(Layout::Options{},
                      Layout::Options{.mesh = {.tensor = 2, .pipeline = 2}},
                      Layout::Options{.mesh = {.data = 2}, .zero = 3},
                      Layout::Options{.mesh = {.tensor = 2, .data = 4},
                                      .zero = 3,
                                      .shard = 2}));

TEST_P(HomesOfWeightsTest, TakeAtMostHalfOfTheBudget) {
  const int64_t all = DeviceBytes(LayoutOf({}));
  OffloadRules streamed;
  streamed.resident = 0;
  const int64_t least = DeviceBytes(LayoutOf(streamed));
  ASSERT_LT(least, all);
  EXPECT_EQ(OnHost(LayoutOf({.device = 2 * all})), 0);
  for (int64_t bytes = all - 1; bytes >= least; bytes -= (all - least) / 5) {
    const Layout layout = LayoutOf({.device = 2 * bytes});
    EXPECT_LE(DeviceBytes(layout), bytes);
    EXPECT_GT(OnHost(layout), 0);
  }
  EXPECT_LT(OnHost(LayoutOf({.device = 2 * all - 2})),
            OnHost(LayoutOf(streamed)));
  // As little as can be.
  EXPECT_EQ(DeviceBytes(LayoutOf({.device = 1})), least);
  // What is said is no budget's to find.
  OffloadRules here{.device = 1};
  here.all.weights = Home::kDevice;
  EXPECT_EQ(OnHost(LayoutOf(here)), 0);
}

}  // namespace
}  // namespace delink::homes_of_weights_test
