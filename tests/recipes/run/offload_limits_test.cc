// Devices and hosts of which no more may be taken than a budget says, to the
// byte, in steps and at the switch between stages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/comm/thread_communicator.h"
#include "framework/step/plan/memory.h"
#include "recipes/models/model_list.h"
#include "recipes/plan/plan.h"
#include "recipes/run/dry_run/check_memory.h"
#include "recipes/run/stage/stage_run.h"
#include "tests/recipes/run/constant_batch.h"
#include "tests/recipes/run/recipe_env.h"
#include "tests/testing/source_path.h"

namespace delink::testing::offload_limits_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kRecipe = SourcePath("recipes/tiny_llama.toml");

// Of a stage, its slots: on the device and stored.
struct Slots {
  int64_t device = 0, stored = 0;  // bytes
};

Slots SlotsOf(const StageRun& stage) {
  return {stage.account().slots, stage.executor().memory().stored_bytes()};
}

// Those of the first stage once it has taken the second one's layout, and those
// of the second, of which `homes` says what is left to auto.
absl::Status SlotsAtSwitch(const std::string& offload, const AutoPlace& homes,
                           Communicator& comm, Slots* taken, Slots* real) {
  const std::vector<std::string> sets = {
      "model.layers=6",        "model.vocab=257",
      "data.batch=16",         "stage.0.micro_batch=2",
      "stage.1.micro_batch=8", absl::StrCat("stage.1.offload={", offload, "}")};
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<RecipeEnv> of,
                          NewRecipeEnv(kRecipe, sets, comm));
  RunEnv& env = of->env;
  env.homes = {AutoPlace(), homes};
  DELINK_ASSIGN_OR_RETURN(std::unique_ptr<StageRun> stage,
                          StageRun::Create(env, 0));
  DELINK_RETURN_IF_ERROR(stage->TakeLayout(1));
  *taken = SlotsOf(*stage);
  DELINK_ASSIGN_OR_RETURN(stage, StageRun::Switch(env, std::move(stage), 1));
  *real = SlotsOf(*stage);
  return absl::OkStatus();
}

// The stage before is described with the micro-batches of the stage to come,
// whose activations may be more than the device has room for.
TEST(OffloadLimits, ActivationsAreWhereTheStageToComeHasThem) {
  const AutoPlace found{.activations = 1};
  struct Case {
    std::string offload;
    AutoPlace homes;
  };
  const Case cases[] = {{.offload = "", .homes = {}},
                        {.offload = "activations=\"host\"", .homes = {}},
                        {.offload = "device=\"1GiB\"", .homes = found}};
  Slots resident;
  for (const Case& of : cases) {
    SCOPED_TRACE(of.offload);
    Slots taken, real;
    const absl::Status status = RunRanks(1, [&](Communicator& comm) {
      return SlotsAtSwitch(of.offload, of.homes, comm, &taken, &real);
    });
    ASSERT_TRUE(status.ok()) << std::string(status.message());
    EXPECT_EQ(taken.device, real.device);
    EXPECT_EQ(taken.stored, real.stored);
    if (of.offload.empty()) {
      resident = real;
    } else {
      EXPECT_LT(real.device, resident.device);
      EXPECT_GT(real.stored, 0);
    }
  }
}

// Steps of both stages and the switch between them on one device, of whose
// memory `most` is the most that was handed out at a time. Nobody has held the
// account against budgets.
absl::Status TrainThrough(const std::vector<std::string>& sets,
                          Communicator& comm, int64_t* most) {
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<RecipeEnv> of,
                          NewRecipeEnv(kRecipe, sets, comm));
  const RunEnv& env = of->env;
  DELINK_ASSIGN_OR_RETURN(std::unique_ptr<StageRun> stage,
                          StageRun::Create(env, 0));
  stage->store().InitWeights(1);
  for (const int64_t step : {1, 2}) {
    if (step == 2) {
      DELINK_RETURN_IF_ERROR(stage->TakeLayout(1));
      DELINK_ASSIGN_OR_RETURN(stage,
                              StageRun::Switch(env, std::move(stage), 1));
    }
    const HostBatch batch = ConstantBatch(stage->cut());
    DELINK_RETURN_IF_ERROR(
        stage->executor().TrainStep(batch, step, 1e-3).status());
    DELINK_RETURN_IF_ERROR(stage->executor().Drain());
  }
  *most = of->device->ledgers().allocated.highest();
  return absl::OkStatus();
}

// With what the plan says of each stage as its budget, to the byte, a run has
// its device to itself; with a byte less the device refuses.
TEST(OffloadLimits, TheDeviceHoldsABudgetToTheByte) {
  const std::vector<std::string> sets = {
      "model.layers=6", "model.vocab=257", "run.micro_batch=1",
      "stage.0.parallel.zero=1", "stage.1.parallel.zero=1"};
  const std::string home = "state=\"host\"";
  const auto with = [&](const std::string& first, const std::string& second) {
    std::vector<std::string> all = sets;
    all.push_back(absl::StrCat("stage.0.offload={", first, "}"));
    all.push_back(absl::StrCat("stage.1.offload={", second, "}"));
    return all;
  };
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    const auto plan =
        PlanRun({.recipe = kRecipe, .sets = with("", home), .ranks = ranks},
                BuiltInModels());
    ASSERT_TRUE(plan.ok()) << std::string(plan.status().message());
    const int64_t pseudo = plan->stages[0].account.total();
    const int64_t real =
        std::max(plan->stages[1].account.total(), plan->stages[1].switch_bytes);
    ASSERT_LT(pseudo, real);
    const auto run = [&](int64_t first, int64_t second) {
      return RunRanks(ranks, [&](Communicator& comm) -> absl::Status {
        int64_t most = 0;
        DELINK_RETURN_IF_ERROR(
            TrainThrough(with(absl::StrCat("device=", first),
                              absl::StrCat("device=", second, ",", home)),
                         comm, &most));
        EXPECT_EQ(most, real);
        return absl::OkStatus();
      });
    };
    const absl::Status held = run(pseudo, real);
    EXPECT_TRUE(held.ok()) << std::string(held.message());
    for (const auto& [first, second] :
         {std::pair(pseudo - 1, real), std::pair(pseudo, real - 1)}) {
      const absl::Status refused = run(first, second);
      EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
      const int64_t limit = first < pseudo ? first : second;
      EXPECT_TRUE(absl::StrContains(
          refused.message(),
          absl::StrCat("the limit of cpu is ", limit, " bytes, of which ")))
          << std::string(refused.message());
    }
  }
}

constexpr char kHome[] = "weights=\"host\",gradients=\"host\",state=\"host\"";

// The second stage has larger micro-batches, of which the planes of either
// stage are at home on the other tier than the other's.
std::vector<std::string> LargerMicroBatch(const std::string& first,
                                          const std::string& second) {
  return {"model.layers=6",
          "model.vocab=257",
          "data.batch=16",
          "stage.0.share=none",
          "stage.0.micro_batch=1",
          "stage.1.micro_batch=8",
          "stage.0.parallel.zero=1",
          "stage.1.parallel.zero=1",
          absl::StrCat("stage.0.offload={", first, "}"),
          absl::StrCat("stage.1.offload={", second, "}")};
}

absl::StatusOr<RunPlan> PlanOf(const std::vector<std::string>& sets,
                               int ranks = 1) {
  return PlanRun({.recipe = kRecipe, .sets = sets, .ranks = ranks},
                 BuiltInModels());
}

// What is said before a run that has nothing left to auto.
absl::Status Checked(const std::vector<std::string>& sets) {
  return RunRanks(1, [&](Communicator& comm) -> absl::Status {
    DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<RecipeEnv> of,
                            NewRecipeEnv(kRecipe, sets, comm));
    return CheckMemory(of->env, 0, 1, comm);
  });
}

// Before the switch the first stage is evaluated in the micro-batches of the
// second: then most is held, and has to go into the second one's budget.
TEST(OffloadLimits, TheStageBeforeIsCountedAsItIsAtTheSwitch) {
  const std::string home = absl::StrCat(kHome, ",activations=\"device\"");
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    const auto plan = PlanOf(LargerMicroBatch("", home), ranks);
    ASSERT_TRUE(plan.ok()) << std::string(plan.status().message());
    const StagePlan& stage = plan->stages[1];
    const int64_t held = stage.switch_bytes;
    ASSERT_GT(held, stage.switch_planes);
    ASSERT_GT(held, stage.account.total());
    ASSERT_GT(held, plan->stages[0].account.total());
    EXPECT_EQ(plan->peak_bytes(), held);
    const auto within = [&](int64_t device) {
      return LargerMicroBatch("", absl::StrCat("device=", device, ",", home));
    };
    const auto run = [&](int64_t device) {
      return RunRanks(ranks, [&](Communicator& comm) -> absl::Status {
        int64_t most = 0;
        DELINK_RETURN_IF_ERROR(TrainThrough(within(device), comm, &most));
        EXPECT_EQ(most, held);
        return absl::OkStatus();
      });
    };
    EXPECT_TRUE(run(held).ok());
    EXPECT_EQ(run(held - 1).code(), absl::StatusCode::kResourceExhausted);
    EXPECT_TRUE(PlanOf(within(held), ranks).ok());
    const auto refused = PlanOf(within(held - 1), ranks);
    EXPECT_THAT(std::string(refused.status().message()),
                AllOf(HasSubstr("stage[1].offload.device: "),
                      HasSubstr("1 B too much: stage pseudo is then evaluated "
                                "in this stage's layout; raise it, ")));
    if (ranks > 1) continue;
    EXPECT_TRUE(Checked(within(held)).ok());
    EXPECT_THAT(
        std::string(Checked(within(held - 1)).message()),
        AllOf(HasSubstr("stage[1].offload.device: "),
              HasSubstr("which is then evaluated in this stage's layout, ")));
  }
}

// On the host slots that are stored are beside the planes of the stage before.
TEST(OffloadLimits, TheHostHoldsTheStageBeforeAsItIsAtTheSwitch) {
  const std::string stored =
      "weights=\"device\",gradients=\"device\",state=\"device\","
      "activations=\"host\"";
  const auto plan = PlanOf(LargerMicroBatch(kHome, stored));
  ASSERT_TRUE(plan.ok()) << std::string(plan.status().message());
  const int64_t slots = plan->stages[1].account.host;
  ASSERT_GT(slots, 0);
  const int64_t held = plan->stages[0].account.host + slots;
  const auto within = [&](int64_t host) {
    return LargerMicroBatch(kHome, absl::StrCat("host=", host, ",", stored));
  };
  EXPECT_TRUE(PlanOf(within(held)).ok());
  EXPECT_TRUE(Checked(within(held)).ok());
  EXPECT_THAT(std::string(PlanOf(within(held - 1)).status().message()),
              HasSubstr("stage[1].offload.host: "));
  EXPECT_THAT(std::string(Checked(within(held - 1)).message()),
              AllOf(HasSubstr("stage[1].offload.host: "),
                    HasSubstr("at the switch its ranks and those of the stage "
                              "before take ")));
}

}  // namespace
}  // namespace delink::testing::offload_limits_test
