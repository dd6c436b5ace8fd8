// A switch to ranks that are arranged otherwise, as layouts_run_test.cc and
// pipeline_run_test.cc do not draw it: the weights go over to them before a
// loss is taken, and no bit of the function changes. From there on the run is
// the one that goes on from the checkpoint of the switch over ranks that do the
// same additions: as many data ranks, without a pipeline.
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::layout_switch_test {
namespace {

constexpr int64_t kSteps = 20, kSwitch = 10;  // recipes/tiny.toml

struct Row {
  const char* name;
  int ranks;
  std::vector<std::string> sets;  // of both stages
  int data;                       // ranks after the switch
  bool grows = false;
  friend std::ostream& operator<<(std::ostream& out, const Row& row) {
    return out << row.name;
  }
};

const std::vector<Row> kRows = {
    {"ranks in another order",
     4,
     {"stage.1.parallel.pipeline=2",
      "stage.1.parallel.rank_order=[\"pipeline\",\"data\",\"tensor\","
      "\"context\"]"},
     2},
    // Blocks of the next stage's pieces are not those of this one's.
    {"grown",
     2,
     {"stage.0.depth=2", "stage.1.parallel.pipeline=2",
      "stage.1.parallel.layers=[1,3]"},
     1,
     true},
};

class LayoutSwitch : public ::testing::TestWithParam<Row> {
 protected:
  LayoutSwitch() {
    runs_.sets = {"model.tied=false", "run.micro_batch=1",
                  "run.checkpoint_every=0", "run.norms_every=0"};
  }
  TinyRuns runs_;
};
INSTANTIATE_TEST_SUITE_P(Rows, LayoutSwitch, ::testing::ValuesIn(kRows));

TEST_P(LayoutSwitch, ChangesNoBit) {
  const Row& row = GetParam();
  ASSERT_NO_FATAL_FAILURE(
      runs_.Go({.ranks = row.ranks, .sets = row.sets, .out = "straight"}));
  const std::vector<Switch> switches = runs_.Switches("straight");
  ASSERT_EQ(switches.size(), 1u);
  EXPECT_EQ(switches[0].step, kSwitch);
  if (!row.grows) {
    EXPECT_EQ(switches[0].loss_before, switches[0].loss_after);
  }
  ASSERT_NO_FATAL_FAILURE(runs_.Go({.ranks = row.ranks,
                                    .sets = row.sets,
                                    .out = "other",
                                    .until_step = kSwitch}));
  std::vector<std::string> sets = row.sets;
  sets.insert(sets.end(),
              {"stage.0.parallel={}", "stage.1.parallel={pipeline=1}"});
  ASSERT_NO_FATAL_FAILURE(runs_.Go(
      {.ranks = row.data, .sets = sets, .out = "other", .resume = true}));
  runs_.ExpectSameBits("straight", "other", kSteps);
  const std::vector<Switch> others = runs_.Switches("other");
  ASSERT_EQ(others.size(), 1u);
  EXPECT_EQ(others[0].loss_after, switches[0].loss_after);
}

// A stage whose ranks have all tokens may have micro-batches that could not be
// cut, also as the one behind a stage that cuts its own.
TEST(LayoutSwitchRows, NeedNotBeCutAfterIt) {
  TinyRuns runs;
  runs.sets = {"run.checkpoint_every=0", "run.norms_every=0", "data.seq=30",
               "stage.0.parallel={tensor=4}", "stage.0.micro_batch=2"};
  ASSERT_NO_FATAL_FAILURE(
      runs.Go({.ranks = 4,
               .sets = {"stage.1.parallel={tensor=4, sequence=false}",
                        "stage.1.micro_batch=1"},
               .out = "run"}));
  const std::vector<Switch> switches = runs.Switches("run");
  ASSERT_EQ(switches.size(), 1u);
  EXPECT_EQ(switches[0].loss_before, switches[0].loss_after);
}

// Of moments of 8 bits other ranks have other blocks, behind a switch from data
// ranks to more tensor ranks than there are heads of keys and values.
TEST(LayoutSwitchResume, MomentsOfEightBitsGoOverToOtherRanks) {
  TinyRuns runs("tiny_llama");
  runs.sets = {"run.checkpoint_every=0",    "run.norms_every=0",
               "run.micro_batch=1",         "optimizer.moments=8bit",
               "stage.0.parallel={zero=1}", "stage.1.parallel={tensor=4}"};
  ASSERT_NO_FATAL_FAILURE(runs.Go({.ranks = 4, .out = "straight"}));
  ASSERT_NO_FATAL_FAILURE(
      runs.Go({.ranks = 4, .out = "moved", .until_step = kSwitch + 3}));
  ASSERT_NO_FATAL_FAILURE(
      runs.Go({.ranks = 8,
               .sets = {"stage.1.parallel={tensor=2, data=2, pipeline=2}"},
               .out = "moved",
               .resume = true}));
  EXPECT_LT(LossDifference(runs.Steps("straight"), runs.Steps("moved")), 2e-3);
}

}  // namespace
}  // namespace delink::testing::layout_switch_test
