// Delinking by hand in the middle of a run, of a model of one's own.
#include <gtest/gtest.h>

#include "recipes/saved/offline_delink.h"
#include "tests/recipes/run/hybrid.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::delink_run_test {
namespace {

// From the checkpoint at the switch, as in the run.
TEST(DelinkRunTest, OfflineIsBitEqual) {
  const TinyRuns runs;
  runs.Go({.out = "a", .models = Hybrids});
  const auto report = OfflineDelink(
      {.checkpoint = runs.Checkpoint("a", 10), .out = runs.Folder("cut")},
      Hybrids());
  ASSERT_TRUE(report.ok()) << report.status();
  runs.Go({.out = "b",
           .resume = true,
           .resume_from = report->to,
           .models = Hybrids});
  EXPECT_EQ(FirstDifference(runs.Load("a", 20), runs.Load("b", 20)), "");
}

}  // namespace
}  // namespace delink::testing::delink_run_test
