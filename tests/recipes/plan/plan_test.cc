// Plans against what they foretell: the same recipe is made on a device that
// does allocate, takes a step, and is counted.
#include "recipes/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/comm/thread_communicator.h"
#include "layers/kernels/cpu/threads.h"
#include "layers/kernels/timed/timed.h"
#include "recipes/record/progress.h"
#include "recipes/run/setup/prepare.h"
#include "recipes/run/stage/stage_run.h"
#include "recipes/schema/recipe_io.h"
#include "tests/framework/comm/counting_communicator.h"
#include "tests/recipes/run/constant_batch.h"
#include "tests/testing/source_path.h"

namespace delink::testing::plan_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Words = std::vector<std::string>;

const std::string kTiny = SourcePath("recipes/tiny.toml");

// What a stage took on one rank.
struct Taken {
  int64_t bytes = 0;
  int64_t allocations = 0;  // after Create
  double flops = 0;         // of one step
  MemoryAccount account;
  Program program;
  int64_t reduced = 0, gathered = 0;  // by the network lane in one step
};

// Of the kernels that were called, but for what attention's backward makes of
// its scores again: one product of five, which no op counts.
double FlopsOf(const KernelCalls& calls) {
  double flops = 0;
  for (const TimedCall& call : calls.calls()) {
    const bool again = call.work.kernel == std::string("attention_backward");
    flops += again ? call.work.flops / 5 * 4 : call.work.flops;
  }
  return flops;
}

// Makes a stage as a run does, takes a step, and counts.
absl::StatusOr<Taken> Train(const Words& sets, Communicator& comm,
                            size_t index) {
  const ModelList models = BuiltInModels();
  DELINK_ASSIGN_OR_RETURN(const Recipe read,
                          ReadRecipe(kTiny, sets, KindsOf(models)));
  DELINK_ASSIGN_OR_RETURN(const Recipe recipe, CheckWorld(read, comm.size()));
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> network,
                          comm.Split(0, comm.rank()));
  CountingCommunicator counted(*network);
  KernelCalls calls;
  const std::unique_ptr<Device> device = NewTimedDevice(NewCpuDevice(), calls);
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<RunModel> model,
                          RunModel::Create(recipe, models));
  const RunEnv env = model->On(*device, comm, counted);
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<StageRun> stage,
                          StageRun::Create(env, index));
  stage->store().InitWeights(1);
  Taken taken{.bytes = device->bytes_in_use(),
              .account = stage->account(),
              .program = stage->executor().program()};
  const int64_t before = device->allocations();
  calls.Clear();
  DELINK_RETURN_IF_ERROR(stage->executor()
                             .TrainStep(ConstantBatch(stage->cut()), 1, 1e-3)
                             .status());
  DELINK_RETURN_IF_ERROR(stage->executor().Drain());
  taken.allocations = device->allocations() - before;
  taken.flops = FlopsOf(calls);
  taken.reduced = counted.reduced();
  taken.gathered = counted.gathered();
  return taken;
}

// A recipe of its own for each seed: model, batch, sharing, placement, order.
Words RandomRecipe(unsigned seed, int ranks) {
  std::mt19937 random(seed);
  const auto pick = [&](const Words& from) {
    return from[random() % from.size()];
  };
  const int layers = std::stoi(pick({"2", "4", "6"}));
  const int micro = std::stoi(pick({"1", "2", "3"}));
  const int accumulated = std::stoi(pick({"1", "2", "3"}));
  const Words shares = layers % 4 == 0
                           ? Words{"all", "groups:2", "cycle:4", "none"}
                           : Words{"all", "groups:2", "cycle:2", "none"};
  const std::string share = pick(shares);
  // Any depth does where no set of blocks can be left without one.
  const bool any = share == "all" || share == "none";
  const int depth =
      any ? 1 + static_cast<int>(random() % static_cast<unsigned>(layers))
          : layers;
  return {
      absl::StrCat("model.layers=", layers),
      absl::StrCat("model.dim=", pick({"8", "24", "40"})),
      absl::StrCat("model.ffn=", pick({"16", "33"})),
      absl::StrCat("model.heads=", pick({"2", "4"})),
      absl::StrCat("model.vocab=", pick({"61", "257"})),
      absl::StrCat("model.norm=", pick({"layer_norm", "rms_norm"})),
      absl::StrCat("model.bias=", pick({"true", "false"})),
      absl::StrCat("model.tied=", pick({"true", "false"})),
      absl::StrCat("model.dropout=", pick({"0.0", "0.1"})),
      absl::StrCat("data.seq=", pick({"5", "16"})),
      absl::StrCat("data.batch=", ranks * micro * accumulated),
      absl::StrCat("run.micro_batch=", micro),
      absl::StrCat("run.recompute=",
                   pick({"none", "norm+activation", "block"})),
      absl::StrCat("run.order=", pick({"micro_batch", "layer"})),
      absl::StrCat("run.probe_every=", pick({"0", "2"})),
      "stage.0.share=" + share,
      absl::StrCat("stage.0.depth=", depth),
      absl::StrCat("stage.1.recompute=",
                   pick({"none", "norm+activation", "block"})),
      absl::StrCat("stage.1.micro_batch=", pick({"1", std::to_string(micro)})),
      absl::StrCat("stage.0.parallel.zero=", pick({"0", "1", "2"})),
      absl::StrCat("stage.1.parallel.zero=", pick({"0", "1", "2"})),
      absl::StrCat("run.precision=", pick({"fp32", "bf16"}))};
}

TEST(Plan, ForetellsEveryByteOfThirtyRecipes) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    const int ranks = 1 << (seed % 3);
    const Words sets = RandomRecipe(seed, ranks);
    SCOPED_TRACE(absl::StrCat("seed ", seed, " on ", ranks, " ranks"));
    const auto plan = PlanRun({.recipe = kTiny,
                               .sets = sets,
                               .ranks = ranks,
                               .threads = cpu::MaxThreads()},
                              BuiltInModels());
    ASSERT_TRUE(plan.ok()) << std::string(plan.status().message());
    ASSERT_EQ(plan->stages.size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      const StagePlan& stage = plan->stages[i];
      const absl::Status status = RunRanks(ranks, [&](Communicator& comm) {
        DELINK_ASSIGN_OR_RETURN(const Taken taken, Train(sets, comm, i));
        EXPECT_EQ(taken.bytes, stage.account.total());
        EXPECT_EQ(ToString(taken.account), ToString(stage.account));
        EXPECT_EQ(taken.allocations, 0);
        EXPECT_EQ(taken.flops, stage.flops_per_step / ranks);
        EXPECT_EQ(taken.program, stage.pipeline.stages[0].program);
        EXPECT_EQ(taken.reduced, stage.reduced_bytes);
        EXPECT_EQ(taken.gathered, stage.gathered_bytes);
        return absl::OkStatus();
      });
      ASSERT_TRUE(status.ok()) << std::string(status.message());
    }
  }
}

// One layer of four that is run once takes what that layer takes.
TEST(Plan, AStageOfFewerLayersTakesLess) {
  const Words sets = {"stage.0.depth=1", "model.tied=false", "model.vocab=61"};
  const auto plan =
      PlanRun({.recipe = kTiny, .sets = sets, .ranks = 1}, BuiltInModels());
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto only =
      PlanRun({.recipe = kTiny,
               .sets = {"model.layers=1", "model.tied=false", "model.vocab=61"},
               .ranks = 1},
              BuiltInModels());
  ASSERT_TRUE(only.ok()) << only.status();
  const StagePlan& shallow = plan->stages[0];
  const StagePlan& deep = plan->stages[1];
  EXPECT_EQ(shallow.depth, 1);
  EXPECT_EQ(deep.depth, 4);
  EXPECT_EQ(shallow.unique_parameters, only->stages[0].unique_parameters);
  EXPECT_EQ(shallow.virtual_parameters, shallow.unique_parameters);
  EXPECT_EQ(shallow.account.total(), only->stages[0].account.total());
  EXPECT_EQ(shallow.flops_per_token, only->stages[0].flops_per_token);
  EXPECT_LT(shallow.flops_per_token, 0.6 * deep.flops_per_token);
  EXPECT_LT(shallow.account.total(), 0.6 * deep.account.total());
  EXPECT_THAT(ToText(*plan, false), HasSubstr("\n  visits 1 of 4 blocks\n"));
}

// 100 layers of width 12 288: 181 thousand million parameters.
TEST(Plan, AModelFarTooLargeIsPlannedInNoTimeAndMemory) {
  const int64_t resident = PeakResidentBytes();
  const auto start = std::chrono::steady_clock::now();
  const auto plan =
      PlanRun({.recipe = kTiny,
               .sets = {"model.layers=100", "model.dim=12288", "model.heads=96",
                        "model.vocab=50304", "data.seq=2048", "data.batch=1024",
                        "run.micro_batch=1", "run.recompute=block"},
               .ranks = 64},
              BuiltInModels());
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - start;
  ASSERT_TRUE(plan.ok()) << std::string(plan.status().message());
  EXPECT_LT(took.count(), 10);
  EXPECT_LT(PeakResidentBytes() - resident, int64_t{256} << 20);
  const StagePlan& real = plan->stages[1];
  EXPECT_GT(real.unique_parameters, int64_t{181'000'000'000});
  EXPECT_EQ(real.unique_parameters, real.virtual_parameters);
  EXPECT_LT(plan->stages[0].unique_parameters, real.unique_parameters / 70);
  EXPECT_GE(real.account.weights, 4 * real.unique_parameters);
  EXPECT_GT(real.switch_bytes, real.account.weights * 4);
  EXPECT_GE(plan->peak_bytes(), real.account.total());
  // Forward, backward and recompute: 8 FLOPs a parameter and token, and
  // attention's.
  EXPECT_NEAR(
      real.flops_per_token / static_cast<double>(real.unique_parameters), 8.0,
      0.4);
}

// Four times the layers take four times as long, not sixteen.
TEST(Plan, TakesTimeByTheLayer) {
  const auto seconds = [](int layers) {
    double least = 1e9;
    for (int i = 0; i < 3; ++i) {
      const std::clock_t begin = std::clock();  // of this process alone
      const auto plan = PlanRun(
          {.recipe = kTiny,
           .sets = {"model.vocab=257", absl::StrCat("model.layers=", layers)}},
          BuiltInModels());
      EXPECT_TRUE(plan.ok()) << plan.status();
      least = std::min(least, static_cast<double>(std::clock() - begin));
    }
    return least / CLOCKS_PER_SEC;
  };
  const double few = seconds(400), many = seconds(1600);
  EXPECT_LT(many, 8 * few);
}

TEST(Plan, StagesAreCounted) {
  const auto plan =
      PlanRun({.recipe = kTiny, .sets = {"model.vocab=257"}}, BuiltInModels());
  ASSERT_TRUE(plan.ok()) << std::string(plan.status().message());
  EXPECT_EQ(plan->ranks, 1);
  EXPECT_EQ(plan->stages[0].steps(), 10);
  EXPECT_EQ(plan->stages[1].begin, 10);
  EXPECT_EQ(plan->stages[1].end, 20);
  EXPECT_EQ(plan->stages[1].tokens, 10 * 8 * 32);
  EXPECT_EQ(plan->stages[0].reduced_bytes, 0);
  EXPECT_EQ(plan->stages[0].switch_bytes, 0);
  const std::string text = ToText(*plan, true);
  EXPECT_THAT(text,
              AllOf(HasSubstr("attention: 4 blocks use 1 slab\n"),
                    HasSubstr("mlp: 4 blocks use 4 slabs\n"),
                    HasSubstr("F(0,a) F(1,a)"), HasSubstr("20 F, 4 Loss")));
  EXPECT_EQ(ToText(*plan, false).find("F(0,a)"), std::string::npos);
}

// Micro-batch after micro-batch, gradients are whole until the last one.
TEST(Plan, TellsHowManyGradientsAreWhole) {
  const auto of = [](const std::string& order, int zero,
                     const std::string& reduce = "step") {
    const auto plan =
        PlanRun({.recipe = kTiny,
                 .sets = {"model.vocab=257", "model.layers=6",
                          "run.micro_batch=1", "run.order=" + order,
                          absl::StrCat("stage.1.parallel.zero=", zero),
                          "stage.1.parallel.reduce=" + reduce},
                 .ranks = 2},
                BuiltInModels());
    EXPECT_TRUE(plan.ok()) << plan.status();
    return *plan;
  };
  EXPECT_THAT(ToText(of("layer", 1), false), Not(HasSubstr("whole gradients")));
  constexpr char kAll[] = ", which is all: zero = 1 takes less memory\n";
  const RunPlan all = of("micro_batch", 2);
  EXPECT_THAT(ToText(all, false), HasSubstr(kAll));
  EXPECT_GT(all.stages[1].account.total(),
            of("micro_batch", 1).stages[1].account.total());
  EXPECT_THAT(ToText(all, false), Not(HasSubstr("rounded")));
  const RunPlan parts = of("micro_batch", 2, "micro_batch");
  EXPECT_THAT(ToText(parts, false),
              AllOf(HasSubstr("; each micro-batch is reduced, so sums are "
                              "rounded in another order"),
                    Not(HasSubstr(kAll))));
  EXPECT_LT(parts.stages[1].account.total(), all.stages[1].account.total());
  const RunPlan some = of("layer", 2);
  EXPECT_THAT(ToText(some, false),
              AllOf(HasSubstr(" of whole gradients the copies hold "),
                    Not(HasSubstr(kAll))));
  EXPECT_LT(some.stages[1].account.total(),
            of("layer", 1).stages[1].account.total());
  const auto json = nlohmann::json::parse(ToJson(some, false))["stages"][1];
  EXPECT_EQ(json["whole_gradients"]["bytes"], json["bytes"]["copies"]);
  EXPECT_LT(json["whole_gradients"]["bytes"], json["whole_gradients"]["all"]);
}

TEST(Plan, SecondsAreWhatFlopsTakeAtThePeak) {
  auto plan =
      PlanRun({.recipe = kTiny,
               .sets = {"model.vocab=257", "stage.0.depth=1", "run.threads=3"},
               .ranks = 2},
              BuiltInModels());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->threads, 3);
  const double first = plan->stages[0].flops_per_step;
  const double flops = 10 * first + 10 * plan->stages[1].flops_per_step;
  EXPECT_EQ(plan->stages[0].flops(), 10 * first);
  EXPECT_EQ(plan->flops(), flops);
  // Nobody has looked, and nothing was found.
  EXPECT_THAT(ToText(*plan, false), Not(HasSubstr("at least")));
  EXPECT_FALSE(
      nlohmann::json::parse(ToJson(*plan, false)).contains("least_seconds"));
  plan->no_peak = "there is no such device";
  EXPECT_THAT(ToText(*plan, false),
              HasSubstr("FLOP; no seconds, since no matmul peak is known: "
                        "there is no such device\n"));
  // Ten seconds a step of the first stage.
  plan->peak_flops = first / 10;
  const nlohmann::json json = nlohmann::json::parse(ToJson(*plan, false));
  EXPECT_EQ(json["threads"], 3);
  EXPECT_EQ(json["peak_flops"], first / 10);
  EXPECT_EQ(json["flops"], flops);
  EXPECT_DOUBLE_EQ(json["least_seconds"], flops / first * 10);
  const nlohmann::json& stage = json["stages"][0];
  EXPECT_EQ(stage["flops"], 10 * first);
  EXPECT_DOUBLE_EQ(stage["least_seconds_per_step"], 10);
  EXPECT_DOUBLE_EQ(stage["least_seconds"], 100);
  EXPECT_EQ(stage["depth"], 1);
  EXPECT_EQ(stage["blocks"], 4);
  const std::string text = ToText(*plan, false);
  EXPECT_THAT(
      text, AllOf(HasSubstr("\n  at least 10 s a step and 1 min 40 s in all, "
                            "at 100% of peak\n"),
                  HasSubstr("FLOP/s on each of 2 rank(s), matmul in f32 on 3 "
                            "thread(s), the best measured on this machine\n")));
  plan->peak_flops = first * 1000;
  EXPECT_THAT(ToText(*plan, false),
              HasSubstr("at least 1 ms a step and 10 ms in all"));
}

TEST(Plan, ThePeakIsThisMachinesIfItHasTheDevice) {
  for (const char* device : {"cpu", "cuda"}) {
    auto plan = PlanRun(
        {.recipe = kTiny,
         .sets = {"model.vocab=257", absl::StrCat("run.device=", device)}},
        BuiltInModels());
    ASSERT_TRUE(plan.ok()) << plan.status();
    FindPeak(*plan);
    const bool has = device == std::string("cpu") || CountCudaDevices().ok();
    EXPECT_EQ(plan->peak_flops > 0, has) << device;
    EXPECT_EQ(plan->no_peak.empty(), has) << plan->no_peak;
  }
}

// The one that docs/recipe.md shows.
TEST(Plan, OfTheCommentedRecipe) {
  const auto plan = PlanRun({.recipe = SourcePath("recipes/commented.toml"),
                             .sets = {"model.vocab=8000"}},
                            BuiltInModels());
  ASSERT_TRUE(plan.ok()) << std::string(plan.status().message());
  ASSERT_EQ(plan->stages.size(), 2U);
  EXPECT_EQ(plan->stages[0].steps(), 600);
  EXPECT_TRUE(plan->stages[0].may_end_early);
  EXPECT_FALSE(plan->stages[1].may_end_early);
  EXPECT_THAT(ToText(*plan, false),
              AllOf(HasSubstr(" at the latest, "),
                    HasSubstr("attention: 12 blocks use 1 slab\n"),
                    HasSubstr("mlp: 12 blocks use 4 slabs\n")));
}

// Its first lines promise less than half of the FLOPs.
TEST(Plan, OfTheRecipeThatGrows) {
  const std::string path = SourcePath("recipes/gpt2_124m_growth.toml");
  const ModelList models = BuiltInModels();
  const auto recipe = ReadRecipe(path, {}, KindsOf(models));
  ASSERT_TRUE(recipe.ok()) << std::string(recipe.status().message());
  const auto plan = PlanRun({.recipe = path}, models);
  ASSERT_TRUE(plan.ok()) << std::string(plan.status().message());
  const StagePlan& shallow = plan->stages[0];
  const StagePlan& deep = plan->stages[1];
  EXPECT_EQ(shallow.depth, 1);
  EXPECT_EQ(deep.depth, 12);
  // Grown and warmed up again before the decay begins.
  const ScheduleConfig& schedule = recipe->schedule;
  EXPECT_LT(deep.begin + recipe->stages[1].warmup,
            schedule.steps - schedule.decay_steps());
  const auto flops = [](const StagePlan& stage, int64_t steps) {
    return stage.flops_per_step * static_cast<double>(steps);
  };
  const double grown =
      flops(shallow, shallow.steps()) + flops(deep, deep.steps());
  EXPECT_LT(grown, 0.5 * flops(deep, schedule.steps));
}

TEST(Plan, WithoutACorpusTheVocabularyIsAskedFor) {
  const auto plan = PlanRun(
      {.recipe = kTiny, .sets = {"data.train=/no/such/corpus"}, .ranks = 1},
      BuiltInModels());
  EXPECT_THAT(std::string(plan.status().message()),
              HasSubstr("--set model.vocab=N"));
}

// Keys and values that several ranks have, a vocabulary of which some have
// more, and rows that are cut in pieces are one model's.
TEST(Plan, TheModelsFlopsAreTheSameInEveryLayout) {
  const auto flops = [](const Words& layout) {
    Words sets = {"model.vocab=257", "model.kv_heads=1"};
    for (const std::string& set : layout) {
      sets.push_back("stage.0.parallel." + set);
    }
    const auto plan = PlanRun({.recipe = kTiny, .sets = sets}, BuiltInModels());
    EXPECT_TRUE(plan.ok()) << plan.status();
    if (!plan.ok()) return 0.0;
    EXPECT_EQ(plan->stages[0].flops_per_token, plan->stages[1].flops_per_token);
    return plan->stages[1].flops_per_token;
  };
  const double one = flops({});
  EXPECT_GT(one, 0);
  for (const Words& layout :
       {Words{"tensor=2"}, Words{"tensor=4"}, Words{"context=2"},
        Words{"pipeline=2"}, Words{"data=2"},
        Words{"tensor=2", "context=2", "pipeline=3", "sequence=false"}}) {
    EXPECT_EQ(flops(layout), one) << layout.front();
  }
}

}  // namespace
}  // namespace delink::testing::plan_test
