#include "recipes/run/stage/nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "recipes/models/gpt_config.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::nodes_test {
namespace {

using ::testing::HasSubstr;

Recipe Fitted(int64_t ranks, const ParallelConfig& given, int64_t heads = 4) {
  auto model = std::make_shared<GptConfig>();
  model->heads = model->kv_heads = model->ffn = heads;
  Recipe recipe;
  recipe.model = model;
  ParallelConfig parallel = given;
  parallel.context = parallel.expert = 1;
  if (parallel.rank_order.empty()) {
    parallel.rank_order = {Axis::kTensor, Axis::kContext, Axis::kData,
                           Axis::kPipeline};
  }
  EXPECT_EQ(parallel.ranks(), ranks);
  recipe.stages.resize(1);
  recipe.stages[0].parallel = parallel;
  return recipe;
}

TEST(Nodes, HoldTensorGroups) {
  const ParallelConfig four{.data = 4, .tensor = 4, .pipeline = 1};
  EXPECT_TRUE(CheckNodes(Fitted(16, four), NodesOf(16, 0)).ok());
  EXPECT_TRUE(CheckNodes(Fitted(16, four), NodesOf(16, 8)).ok());
  EXPECT_TRUE(CheckNodes(Fitted(16, four), NodesOf(16, 4)).ok());
  EXPECT_EQ(CheckNodes(Fitted(16, four), NodesOf(16, 2)).message(),
            "stage[0].parallel.tensor: 4, but ranks 0,1,2,3 of one group are "
            "on nodes 0,1, and every layer would wait for the network between "
            "them; use tensor 2, number ranks node by node, or allow it with "
            "tensor_across_nodes = true");
  EXPECT_THAT(
      std::string(CheckNodes(Fitted(16, four), NodesOf(16, 6)).message()),
      HasSubstr("ranks 4,5,6,7 of one group are on nodes 0,1"));
  // 4 ranks of a node cannot share 6 heads.
  const ParallelConfig six{.data = 2, .tensor = 6, .pipeline = 1};
  EXPECT_THAT(
      std::string(CheckNodes(Fitted(12, six, 6), NodesOf(12, 4)).message()),
      HasSubstr("; use tensor 2, "));
  ParallelConfig allowed = four;
  allowed.tensor_across_nodes = true;
  EXPECT_TRUE(CheckNodes(Fitted(16, allowed), NodesOf(16, 2)).ok());
  ParallelConfig slow = four;
  slow.rank_order = {Axis::kData, Axis::kTensor, Axis::kContext,
                     Axis::kPipeline};
  EXPECT_THAT(
      std::string(CheckNodes(Fitted(16, slow), NodesOf(16, 8)).message()),
      HasSubstr("ranks 0,4,8,12 of one group are on nodes 0,1, and "
                "every layer would wait for the network between them; "
                "put \"tensor\" first in rank_order, "));
}

TEST(Nodes, AreSaidWithTheRanks) {
  const auto text = [](const Mesh& mesh, int64_t per_node) {
    return RanksText(mesh, NodesOf(mesh.ranks(), per_node));
  };
  EXPECT_EQ(text({}, 0), "1");
  EXPECT_EQ(text({.data = 4}, 0), "data 4");
  EXPECT_EQ(text({.data = 4}, 2), "data 4; 2 nodes of 2");
  EXPECT_EQ(text({.tensor = 2, .data = 4, .pipeline = 2}, 8),
            "tensor 2 x data 4 x pipeline 2, neighbours along tensor; 2 nodes "
            "of 8, each tensor group on one");
  EXPECT_EQ(text({.tensor = 4, .pipeline = 2}, 3),
            "tensor 4 x pipeline 2, neighbours along tensor; 3 nodes of 2 to "
            "3, tensor groups across them");
  EXPECT_EQ(text({.context = 2,
                  .pipeline = 2,
                  .order = {Axis::kPipeline, Axis::kData, Axis::kContext,
                            Axis::kTensor}},
                 0),
            "pipeline 2 x context 2, neighbours along pipeline");
  EXPECT_EQ(text({.data = 4, .expert = 2}, 0), "data 4, expert 2");
}

TEST(Nodes, OfExperts) {
  const auto nodes = [](const Mesh& mesh, int64_t per_node) {
    return ExpertNodes(mesh, NodesOf(mesh.ranks(), per_node));
  };
  EXPECT_EQ(nodes({.data = 8, .expert = 8}, 0), 1);
  EXPECT_EQ(nodes({.data = 8, .expert = 8}, 4), 2);
  EXPECT_EQ(nodes({.data = 8, .expert = 8}, 1), 8);
  EXPECT_EQ(nodes({.data = 8, .expert = 4}, 4), 1);
  EXPECT_EQ(nodes({.tensor = 2, .data = 4, .pipeline = 2, .expert = 8}, 2), 4);
  // Machines with unlike parts of a group.
  EXPECT_EQ(nodes({.data = 8, .expert = 8}, 3), 1);
  // A machine has every second place.
  EXPECT_EQ(nodes({.tensor = 2,
                   .data = 2,
                   .expert = 4,
                   .order = {Axis::kData, Axis::kTensor, Axis::kContext,
                             Axis::kPipeline}},
                  2),
            1);
}

// Tokens that go once to each machine find what those find that go to each
// rank.
TEST(Nodes, TokensGoOnceToEach) {
  TinyRuns runs("tiny_moe");
  for (const std::string dispatch : {"all-to-all", "deduplicated"}) {
    runs.Go({.ranks = 4,
             .sets = {"stage.0.parallel.expert=4",
                      "stage.0.parallel.dispatch=" + dispatch},
             .out = dispatch,
             .ranks_per_node = 2});
  }
  EXPECT_LT(
      LossDifference(runs.Steps("deduplicated"), runs.Steps("all-to-all")),
      1e-5);
}

// At a switch the old stage is evaluated with the dispatch of the next one,
// which adds four outputs in another order.
TEST(Nodes, ASwitchToAnotherDispatchKeepsTheLoss) {
  TinyRuns runs("tiny_m6");
  runs.Go({.ranks = 4,
           .sets = {"stage.0.parallel.expert=4",
                    "stage.0.parallel.dispatch=all-to-all",
                    "stage.1.parallel.dispatch=deduplicated"},
           .out = "run",
           .ranks_per_node = 2});
  const std::vector<Switch> switches = runs.Switches("run");
  ASSERT_EQ(switches.size(), 1u);
  EXPECT_EQ(switches[0].loss_before, switches[0].loss_after);
}

// The recipes for 10 trillion parameters at toy size, through the switch; what
// is offloaded changes no bit.
TEST(Nodes, RecipesOfTenTrillionParametersRunAtToySize) {
  const struct {
    std::string recipe;
    std::vector<std::string> sets, resident;
  } kRecipes[] = {{"m6_10t_v100",
                   {"stage.0.parallel.expert=4", "stage.1.parallel.expert=8"},
                   {"stage.1.offload.resident=1.0"}},
                  {"m6_10t_h200",
                   {"stage.0.parallel.expert=4", "stage.1.parallel.expert=4",
                    "stage.1.parallel.pipeline=2"},
                   {}}};
  for (const auto& [recipe, layout, resident] : kRecipes) {
    SCOPED_TRACE(recipe);
    TinyRuns runs(recipe);
    runs.sets = {"model.layers=4",    "model.dim=16",       "model.heads=2",
                 "model.experts=160", "model.expert_ffn=8", "model.vocab=257",
                 "data.seq=16",       "data.batch=16",      "schedule.steps=6",
                 "schedule.warmup=1", "run.device=cpu",     "run.log_every=1"};
    runs.sets.insert(runs.sets.end(), layout.begin(), layout.end());
    runs.Go({.ranks = 8, .out = "run", .ranks_per_node = 2});
    const std::vector<Switch> switches = runs.Switches("run");
    ASSERT_EQ(switches.size(), 1u);
    EXPECT_EQ(switches[0].step, 3);
    EXPECT_EQ(switches[0].loss_before, switches[0].loss_after);
    EXPECT_EQ(runs.Steps("run").size(), 6u);
    if (resident.empty()) continue;
    runs.Go({.ranks = 8,
             .sets = resident,
             .out = "on device",
             .ranks_per_node = 2});
    runs.ExpectSameBits("run", "on device", 6);
  }
}

// Of those that were started, before anything else is done.
TEST(Nodes, OfARun) {
  const TinyRuns runs;
  const absl::Status status = runs.Run({.ranks = 4,
                                        .sets = {"stage.1.parallel.tensor=4"},
                                        .out = "never",
                                        .ranks_per_node = 2});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("stage[1].parallel.tensor: 4, but ranks 0,1,2,3 of one "
                        "group are on nodes 0,1"));
}

}  // namespace
}  // namespace delink::testing::nodes_test
