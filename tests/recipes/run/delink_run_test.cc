// Delinking in whole runs (docs/pseudo-to-real.md).
#include <gtest/gtest.h>

#include "tests/recipes/run/tiny_run.h"

namespace delink::testing {
namespace {

const char* const kShares[] = {"\"all\"", "\"groups:2\"", "\"cycle:2\"",
                               "{attention=\"all\",mlp=\"groups:2\"}"};

class DelinkRunTest : public ::testing::TestWithParam<
                          std::tuple<const char*, const char*, int>> {};

// (i) with training before the switch and state carried on.
TEST_P(DelinkRunTest, PreservesTheLossBitForBit) {
  const auto [recipe, share, ranks] = GetParam();
  TinyRuns runs(recipe);
  const absl::Status status =
      runs.Run({.ranks = ranks,
                .sets = {std::string("stage.0.share=") + share},
                .out = "run"});
  ASSERT_TRUE(status.ok()) << std::string(status.message());
  const std::vector<Switch> switches = runs.Switches("run");
  ASSERT_EQ(switches.size(), 1);
  EXPECT_EQ(switches[0].loss_before, switches[0].loss_after);
  EXPECT_GT(switches[0].loss_before, 0);
}

INSTANTIATE_TEST_SUITE_P(Shares, DelinkRunTest,
                         ::testing::Combine(::testing::ValuesIn(kTinyRecipes),
                                            ::testing::ValuesIn(kShares),
                                            ::testing::Values(1, 4)));

}  // namespace
}  // namespace delink::testing
