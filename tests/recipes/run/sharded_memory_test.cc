// What a rank holds where gradients or weights are sharded: its shards, what is
// whole of the layers that are at work, and nothing more in any step.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/comm/thread_communicator.h"
#include "framework/step/plan/memory.h"
#include "recipes/run/stage/stage_run.h"
#include "tests/recipes/run/constant_batch.h"
#include "tests/recipes/run/recipe_env.h"
#include "tests/testing/source_path.h"

namespace delink::testing::sharded_memory_test {
namespace {

std::string RecipeOf(const std::string& name) {
  return SourcePath(absl::StrCat("recipes/", name, ".toml"));
}

// Of each size two whole gradients, one in backward and one in reduction, but
// one of embedding and head, which are of one size and far apart, unless the
// head of the next micro-batch follows; or all, if each is complete with the
// last micro-batch only.
TEST(ShardedGradients, AreWholeWhileALayerIsAtWork) {
  struct Case {
    const char* order;
    int micro_batch;
    const char* reduce;
    int64_t most, ends;  // whole gradients of a size, of blocks or the others
  };
  constexpr int kRanks = 2;
  for (const Case& c :
       {Case{"layer", 1, "step", 2, 1}, Case{"micro_batch", 4, "step", 2, 1},
        Case{"micro_batch", 1, "step", 100, 100},
        Case{"micro_batch", 1, "micro_batch", 2, 2}}) {
    SCOPED_TRACE(absl::StrCat(c.order, " ", c.micro_batch, " ", c.reduce));
    std::vector<std::string> sets = {
        "model.layers=9",
        "model.vocab=257",
        "model.tied=false",
        "data.batch=8",
        absl::StrCat("run.order=", c.order),
        absl::StrCat("run.micro_batch=", c.micro_batch)};
    std::map<int, MemoryAccount> of;  // by ZeRO stage
    int64_t whole = 0;
    for (const int zero : {1, 2}) {
      sets.push_back(absl::StrCat("stage.1.parallel.zero=", zero));
      if (zero == 2) {
        sets.push_back(absl::StrCat("stage.1.parallel.reduce=", c.reduce));
      }
      const absl::Status status = RunRanks(kRanks, [&](Communicator& comm) {
        DELINK_ASSIGN_OR_RETURN(
            const std::unique_ptr<RecipeEnv> env,
            NewRecipeEnv(RecipeOf("tiny_llama"), sets, comm));
        DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<StageRun> stage,
                                StageRun::Create(env->env, 1));
        if (comm.rank() > 0) return absl::OkStatus();
        of[zero] = stage->account();
        std::map<int64_t, int64_t> slabs;  // by elements
        const ParamStore& store = stage->store();
        for (size_t s = 0; zero == 2 && s < store.slabs().size(); ++s) {
          const int64_t bytes = WholeGradientBytes(store, static_cast<int>(s));
          const int leader = store.slabs()[s].leader;
          const bool is_end = leader == 0 || leader > store.blocks();
          const int64_t before = slabs[store.slabs()[s].elements]++;
          if (before < (is_end ? c.ends : c.most)) whole += bytes;
        }
        return absl::OkStatus();
      });
      ASSERT_TRUE(status.ok()) << std::string(status.message());
    }
    EXPECT_EQ(of[2].gradients * kRanks, of[1].gradients);
    // A shard is staged that is added to others.
    const bool adds = c.reduce == std::string("micro_batch");
    EXPECT_EQ(of[2].copies, whole + (adds ? of[1].copies : 0));
    EXPECT_EQ(of[2].state, of[1].state);
    const int64_t one = of[1].gradients + of[1].copies;
    EXPECT_EQ(of[2].gradients + of[2].copies < one, c.most == 2);
  }
}

// Weights of slabs that are sharded, by their size.
struct Sharded {
  int64_t slabs = 0, bytes = 0;  // of one, whole
};

std::map<int64_t, Sharded> ShardedOf(const ParamStore& store) {
  std::map<int64_t, Sharded> of;
  for (size_t s = 0; s < store.slabs().size(); ++s) {
    const int slab = static_cast<int>(s);
    if (!store.placement(slab).weight.sharded) continue;
    Sharded& size = of[store.slab(slab).elements];
    ++size.slabs;
    size.bytes = store.whole_bytes(slab, Plane::kWeight);
  }
  return of;
}

absl::Status TakesNoMoreIn100Steps(StageRun& stage, const Device& device) {
  const int64_t allocations = device.allocations(),
                taken = stage.account().allocated();
  for (int64_t step = 1; step <= 100; ++step) {
    DELINK_RETURN_IF_ERROR(
        stage.executor()
            .TrainStep(ConstantBatch(stage.cut()), step, 1e-3)
            .status());
    EXPECT_EQ(device.bytes_in_use(), taken) << step;
  }
  DELINK_RETURN_IF_ERROR(stage.executor().Drain());
  EXPECT_EQ(device.allocations(), allocations);
  return absl::OkStatus();
}

// Of each size two slabs have whole weights: one whose layer is at work and one
// that is gathered meanwhile. All else is as with sharded gradients.
TEST(ShardedWeights, AreWholeWhileALayerIsAtWork) {
  struct Case {
    const char* recipe;
    std::vector<std::string> sets;
  };
  const Case cases[] = {
      {"tiny_llama", {"model.tied=true"}},
      {"tiny_llama", {"model.tied=false", "run.order=layer"}},
      // Blocks with and without experts.
      {"tiny_moe", {"model.dense_layers=2", "run.recompute=block"}}};
  constexpr int kRanks = 3;
  for (const Case& c : cases) {
    SCOPED_TRACE(absl::StrJoin(c.sets, " "));
    std::vector<std::string> sets = {"model.vocab=257", "model.layers=7",
                                     "model.dim=16",    "data.seq=8",
                                     "data.batch=6",    "run.micro_batch=1"};
    sets.insert(sets.end(), c.sets.begin(), c.sets.end());
    std::map<int, MemoryAccount> of;  // by ZeRO stage
    for (const int zero : {2, 3}) {
      sets.push_back(absl::StrCat("stage.1.parallel.zero=", zero));
      const absl::Status status = RunRanks(kRanks, [&](Communicator& comm) {
        DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<RecipeEnv> env,
                                NewRecipeEnv(RecipeOf(c.recipe), sets, comm));
        DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<StageRun> stage,
                                StageRun::Create(env->env, 1));
        stage->store().InitWeights(1);
        const std::map<int64_t, Sharded> sharded = ShardedOf(stage->store());
        const MemoryAccount account = stage->account();
        int64_t whole = 0;
        for (const auto& [elements, size] : sharded) {
          whole += std::min<int64_t>(size.slabs, 2) * size.bytes;
        }
        EXPECT_EQ(account.fetched, whole);
        if (comm.rank() == 0) of[zero] = account;
        return zero == 3 ? TakesNoMoreIn100Steps(*stage, *env->device)
                         : absl::OkStatus();
      });
      ASSERT_TRUE(status.ok()) << std::string(status.message());
    }
    EXPECT_EQ(of[3].weights * kRanks, of[2].weights);
    EXPECT_EQ(of[3].allocated(), of[2].allocated() - of[2].weights +
                                     of[3].weights + of[3].fetched);
    EXPECT_LT(of[3].weights + of[3].fetched, of[2].weights);
  }
}

}  // namespace
}  // namespace delink::testing::sharded_memory_test
