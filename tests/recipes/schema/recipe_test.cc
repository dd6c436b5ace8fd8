// Derived values, and the recipe against a number of ranks.
#include "recipes/schema/recipe.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/recipes/schema/sample.h"

namespace delink::recipe_test {
namespace {

std::string WorldError(const Recipe& recipe, int64_t world) {
  const auto fitted = CheckWorld(recipe, world);
  EXPECT_FALSE(fitted.ok());
  return std::string(fitted.status().message());
}

TEST(Recipe, ReadsWhatIsGivenAndResolvesTheRest) {
  const Recipe recipe = Sample();
  const GptConfig& model = GptOf(recipe);
  EXPECT_EQ(model.layers, 4);
  EXPECT_EQ(model.kv_heads, 4);
  EXPECT_EQ(model.ffn, 128);
  EXPECT_EQ(model.vocab, 0);
  EXPECT_EQ(model.max_seq, 64);
  EXPECT_EQ(model.norm, NormKind::kLayerNorm);
  EXPECT_TRUE(model.bias);
  EXPECT_TRUE(model.tied);
  EXPECT_EQ(recipe.data.train, "/data/corpus/train");
  EXPECT_EQ(recipe.data.validation, "/data/corpus/validation");
  ASSERT_EQ(recipe.stages.size(), 2U);
  EXPECT_EQ(recipe.stages[0].share.For("mlp").kind, SharePolicy::Kind::kAll);
  EXPECT_EQ(recipe.stages[1].share.For("mlp").kind, SharePolicy::Kind::kNone);
  EXPECT_EQ(recipe.stages[1].state, StatePolicy::kScale);
  EXPECT_EQ(recipe.optimizer.betas[1], 0.95);
  EXPECT_EQ(recipe.run.precision, DType::kF32);
  EXPECT_EQ(Sample({"run.precision=bf16"}).run.precision, DType::kBF16);
}

TEST(Recipe, TrailingSlashOfAPathIsNothing) {
  EXPECT_EQ(Sample({"data.train=corpus/train/"}).data.validation,
            "/data/corpus/validation");
  EXPECT_EQ(Sample({"data.train=../x/./train"}).data.train, "/x/train");
  EXPECT_EQ(Sample({"data.train=/y/train"}).data.train, "/y/train");
}

TEST(Recipe, StagesTileTheRun) {
  const Recipe recipe = Sample();
  EXPECT_EQ(recipe.StepTokens(0), 512);
  EXPECT_EQ(recipe.PlannedTokens(), 51'200);
  EXPECT_EQ(recipe.PlannedBegin(0), StageMark());
  EXPECT_EQ(recipe.PlannedEnd(0), 30);
  EXPECT_EQ(recipe.PlannedBegin(1), (StageMark{.step = 30, .samples = 240}));
  EXPECT_EQ(recipe.PlannedEnd(1), 100);
}

TEST(Recipe, AStageMayHaveItsOwnBatchMicroBatchAndRecompute) {
  const auto read =
      Parse(Spoiled("[run]", "[[stage]]\nname = \"last\"\n\n[run]"),
            {"stage.0.batch=32", "stage.0.micro_batch=4",
             "stage.0.recompute=block", "stage.1.until={tokens=81920}"});
  ASSERT_TRUE(read.ok()) << read.status();
  const Recipe& recipe = *read;
  EXPECT_EQ(recipe.Batch(0), 32);
  EXPECT_EQ(recipe.Batch(1), 8);
  EXPECT_EQ(recipe.MicroBatch(0), 4);
  EXPECT_EQ(recipe.MicroBatch(1), 2);
  EXPECT_EQ(recipe.RecomputeOf(0), Recompute::kBlock);
  EXPECT_EQ(recipe.RecomputeOf(1), Recompute::kNormActivation);
  EXPECT_EQ(recipe.StepTokens(0), 2048);
  // 30 steps of 32 sequences, then to 81 920 tokens = 1280 sequences in steps
  // of 8.
  EXPECT_EQ(recipe.PlannedBegin(1), (StageMark{.step = 30, .samples = 960}));
  EXPECT_EQ(recipe.PlannedBegin(2), (StageMark{.step = 70, .samples = 1280}));
  EXPECT_EQ(recipe.PlannedTokens(), (1280 + 30 * 8) * 64);
  const auto fitted = CheckWorld(recipe, 2);
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  EXPECT_EQ(fitted->Accumulation(0), 4);
  EXPECT_EQ(fitted->Accumulation(1), 2);
}

TEST(Recipe, BudgetsAreSizes) {
  const auto device = [](const std::string& value) {
    return Sample({"stage.1.offload={device=" + value + "}"})
        .stages[1]
        .offload.device;
  };
  EXPECT_EQ(device("12345"), 12345);
  EXPECT_EQ(device("\"20GiB\""), int64_t{20} << 30);
  EXPECT_EQ(device("\"1.5 TiB\""), int64_t{3} << 39);
  EXPECT_EQ(device("\"0.5KiB\""), 512);
  EXPECT_EQ(device("\"3MiB\""), 3 << 20);
  EXPECT_FALSE(Sample().stages[1].offload.any());
}

TEST(Recipe, StagesVisitSomeBlocks) {
  using Blocks = std::vector<int>;
  const Recipe all = Sample({"stage.0.depth=4", "stage.0.visit=even"});
  EXPECT_EQ(all.Depth(0), 4);
  EXPECT_EQ(all.Visited(0), Blocks());
  EXPECT_EQ(all.Depth(1), 4);
  const Recipe first = Sample({"stage.0.depth=3", "stage.1.grow=zero"});
  EXPECT_EQ(first.Visited(0), (Blocks{0, 1, 2}));
  EXPECT_EQ(first.Visited(1), Blocks());
  EXPECT_EQ(first.stages[1].grow, GrowPolicy::kZero);
  const Recipe even =
      Sample({"model.layers=7", "stage.0.depth=3", "stage.0.visit=even",
              "stage.1.depth=6", "stage.1.visit=even"});
  EXPECT_EQ(even.Visited(0), (Blocks{0, 2, 4}));
  EXPECT_EQ(even.Visited(1), (Blocks{0, 1, 2, 3, 4, 5}));
  const Recipe again = *Parse(ToToml(even));
  EXPECT_EQ(again.Visited(0), even.Visited(0));
  EXPECT_EQ(again.Depth(1), 6);
}

TEST(Recipe, AStageThatIsMeasuredMayLastToTheEndOfTheRun) {
  const Recipe recipe = Sample({"stage.0.until={plateau=0.01,window=20}"});
  EXPECT_EQ(recipe.PlannedEnd(0), 100);
  EXPECT_EQ(recipe.PlannedBegin(1).step, 100);
  EXPECT_EQ(recipe.ProbeEvery(0), 0);
  const Recipe capped =
      Sample({"stage.0.until={gradient=1.5,fraction=0.5,window=20}"});
  EXPECT_EQ(capped.PlannedEnd(0), 50);
  EXPECT_EQ(capped.ProbeEvery(0), 2);
  EXPECT_EQ(capped.ProbeEvery(1), 0);
}

TEST(Recipe, UntilTokensRoundsUpToAStep) {
  EXPECT_EQ(Sample({"stage.0.until={tokens=5120}"}).PlannedEnd(0), 10);
  EXPECT_EQ(Sample({"stage.0.until={tokens=5121}"}).PlannedEnd(0), 11);
  EXPECT_EQ(Sample({"stage.0.until={tokens=1}"}).PlannedEnd(0), 1);
  EXPECT_EQ(Sample({"stage.0.until={steps=7}"}).PlannedEnd(0), 7);
}

TEST(Recipe, SpansAreStepsOrFractions) {
  const Recipe steps = Sample({"schedule.warmup=7", "schedule.decay=0"});
  EXPECT_EQ(steps.schedule.warmup_steps(), 7);
  EXPECT_EQ(steps.schedule.decay_steps(), 0);
  const Recipe parts = Sample({"schedule.warmup=0.07", "schedule.decay=0.5"});
  EXPECT_EQ(parts.schedule.warmup_steps(), 7);
  EXPECT_EQ(parts.schedule.decay_steps(), 50);
}

TEST(Recipe, WithoutStagesItIsOneThatSharesNothing) {
  const std::string text = kSample;
  const size_t begin = text.find("[[stage]]"), end = text.find("[run]");
  const auto recipe = Parse(text.substr(0, begin) + text.substr(end));
  ASSERT_TRUE(recipe.ok()) << recipe.status();
  ASSERT_EQ(recipe->stages.size(), 1U);
  EXPECT_EQ(recipe->stages[0].name, "real");
  EXPECT_EQ(recipe->PlannedEnd(0), 100);
  EXPECT_EQ(recipe->stages[0].share.For("attention"), SharePolicy{});
}

TEST(Recipe, WithVocabLeavesTheOtherAlone) {
  const Recipe recipe = Sample();
  const Recipe changed = recipe.WithVocab(2048);
  EXPECT_EQ(changed.model->vocab, 2048);
  EXPECT_EQ(recipe.model->vocab, 0);
}

TEST(CheckWorld, OmittedDataTakesTheRanksLeftOver) {
  const auto fitted = CheckWorld(Sample(), 4);
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  EXPECT_EQ(fitted->stages[0].parallel.data, 4);
  EXPECT_EQ(fitted->stages[1].parallel.data, 4);
  EXPECT_EQ(fitted->Accumulation(0), 1);
  EXPECT_EQ(CheckWorld(Sample(), 1)->Accumulation(1), 4);
}

TEST(CheckWorld, OmittedMicroBatchIsTheLargestThatFits) {
  const std::string text = Spoiled("micro_batch = 2\n", "");
  const auto micro = [&](int64_t batch, int64_t world) {
    const auto recipe = Parse(text, {"data.batch=" + std::to_string(batch)});
    return CheckWorld(*recipe, world)->run.micro_batch;
  };
  EXPECT_EQ(micro(8, 1), 8);
  EXPECT_EQ(micro(8, 2), 4);
  EXPECT_EQ(micro(8, 8), 1);
  EXPECT_EQ(micro(512, 8), 8);
  EXPECT_EQ(micro(22, 2), 1);
  EXPECT_EQ(micro(21, 1), 7);
}

TEST(CheckWorld, OmittedMicroBatchKeepsAPipelineBusy) {
  const std::string text = Spoiled("micro_batch = 2\n", "");
  const auto micro = [&](int64_t batch, int64_t world) {
    const auto recipe = Parse(text, {"data.batch=" + std::to_string(batch),
                                     "stage.0.parallel.pipeline=2"});
    return CheckWorld(*recipe, world)->run.micro_batch;
  };
  EXPECT_EQ(micro(4, 2), 1);
  EXPECT_EQ(micro(16, 2), 2);
  EXPECT_EQ(micro(16, 4), 1);
  EXPECT_EQ(micro(512, 2), 8);
}

TEST(CheckWorld, SaysWhereTheLayoutIsAndWhatWasStarted) {
  const Recipe recipe = Sample({"stage.1.parallel.data=4"});
  EXPECT_EQ(WorldError(recipe, 2),
            "--set stage.1.parallel.data=4: stage[1].parallel: data 4 = 4 "
            "ranks, but mpirun started 2; start it with mpirun -np 4, or leave "
            "parallel.data out");
  const auto table = Parse(
      Spoiled("share = \"none\"", "share = \"none\"\nparallel = { data = 2 }"));
  EXPECT_EQ(WorldError(*table, 1),
            "gpt.toml:27:14: stage[1].parallel: data 2 = 2 ranks, but one "
            "process was started; start it with mpirun -np 2, or leave "
            "parallel.data out");
  EXPECT_TRUE(CheckWorld(*table, 2).ok());
}

TEST(CheckWorld, ShardsDivideTheDataRanks) {
  const auto with = [](int shard) {
    return Sample({"stage.1.parallel.zero=3",
                   "stage.1.parallel.shard=" + std::to_string(shard)});
  };
  for (const int shard : {1, 2, 4}) {
    EXPECT_TRUE(CheckWorld(with(shard), 4).ok()) << shard;
  }
  const std::string where = "--set stage.1.parallel.shard=";
  const std::string key = ": stage[1].parallel.shard: ";
  EXPECT_EQ(WorldError(with(3), 4),
            where + "3" + key +
                "3 does not divide the 4 data ranks; use shard 2 or 4");
  EXPECT_EQ(
      WorldError(with(8), 4),
      where + "8" + key + "8 does not divide the 4 data ranks; use shard 4");
}

TEST(CheckWorld, OfAPlanNothingWasStarted) {
  const Recipe recipe = Sample({"stage.1.parallel.data=4"});
  EXPECT_EQ(CheckWorld(recipe, 2, true).status().message(),
            "--set stage.1.parallel.data=4: stage[1].parallel: data 4 = 4 "
            "ranks, but the plan is for 2; give --ranks 4, or leave "
            "parallel.data out");
}

TEST(CheckWorld, NamesEveryFactorOfTheLayout) {
  Recipe recipe = Sample();
  recipe.stages[1].parallel = {
      .data = 2, .tensor = 2, .context = 1, .pipeline = 2};
  EXPECT_EQ(WorldError(recipe, 4),
            "gpt.toml:24:1: stage[1].parallel: data 2 x tensor 2 x pipeline 2 "
            "= 8 ranks, but mpirun started 4; start it with mpirun -np 8, or "
            "leave parallel.data out");
  // That many no number of data ranks makes.
  EXPECT_EQ(WorldError(recipe, 6),
            "gpt.toml:24:1: stage[1].parallel: data 2 x tensor 2 x pipeline 2 "
            "= 8 ranks, but mpirun started 6; start it with mpirun -np 8");
  recipe.stages[1].parallel = {
      .data = 1, .tensor = 1, .context = 1, .pipeline = 1};
  EXPECT_EQ(WorldError(recipe, 2),
            "gpt.toml:24:1: stage[1].parallel: data 1 = 1 rank, but mpirun "
            "started 2; start it with mpirun -np 1, or leave parallel.data "
            "out");
  recipe.stages[1].parallel = {.tensor = 2, .context = 1, .pipeline = 2};
  EXPECT_EQ(WorldError(recipe, 6),
            "gpt.toml:24:1: stage[1].parallel: data 1 x tensor 2 x pipeline 2 "
            "is 4 ranks or a multiple, but mpirun started 6; start it with "
            "mpirun -np 4 or 8");
  recipe.positions = nullptr;
  EXPECT_EQ(WorldError(recipe, 6),
            "stage[1].parallel: data 1 x tensor 2 x pipeline 2 is 4 ranks or a "
            "multiple, but mpirun started 6; start it with mpirun -np 4 or 8");
}

TEST(CheckWorld, RanksOfAPipelineMultiplyOut) {
  const Recipe recipe = Sample({"stage.0.parallel.pipeline=2"});
  const auto fitted = CheckWorld(recipe, 4);
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  for (const Stage& stage : fitted->stages) {
    EXPECT_EQ(stage.parallel.data, 2);
    EXPECT_EQ(stage.parallel.ranks(), 4);
  }
  EXPECT_EQ(fitted->Accumulation(1), 2);
  const std::string needs =
      "--set stage.0.parallel.pipeline=2: stage[0].parallel: data 1 x pipeline "
      "2 is 2 ranks or a multiple, but ";
  EXPECT_EQ(WorldError(recipe, 1),
            needs + "one process was started; start it with mpirun -np 2");
  EXPECT_EQ(WorldError(recipe, 5),
            needs + "mpirun started 5; start it with mpirun -np 4 or 6");
  EXPECT_EQ(CheckWorld(recipe, 3, true).status().message(),
            needs + "the plan is for 3; give --ranks 2 or 4");
}

TEST(CheckWorld, StagesMayArrangeTheirRanksOtherwise) {
  const Recipe recipe =
      Sample({"stage.1.parallel.tensor=2", "stage.1.parallel.pipeline=2"});
  EXPECT_EQ(recipe.stages[0].parallel.tensor, 1);
  EXPECT_FALSE(*recipe.stages[0].parallel.sequence);
  EXPECT_TRUE(*recipe.stages[1].parallel.sequence);
  const auto fitted = CheckWorld(recipe, 4);
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  const Mesh pseudo = MeshOf(fitted->stages[0].parallel);
  const Mesh real = MeshOf(fitted->stages[1].parallel);
  EXPECT_EQ(pseudo, Mesh{.data = 4});
  EXPECT_EQ(real, (Mesh{.tensor = 2, .pipeline = 2}));
  EXPECT_EQ(fitted->Accumulation(0), 1);
  EXPECT_EQ(fitted->Accumulation(1), 4);
  EXPECT_FALSE(
      SameMesh(fitted->stages[0].parallel, fitted->stages[1].parallel));
  // A batch that the data ranks of one stage alone cannot be given.
  EXPECT_EQ(
      WorldError(Sample({"stage.0.batch=4", "stage.1.parallel.tensor=4"}), 4),
      "--set stage.0.batch=4: stage[0].batch: 4 is not a multiple of 8 = data "
      "4 x micro_batch 2 (stage[0]); use 8");
}

TEST(CheckWorld, RowsOfTensorRanksAreAsMany) {
  const std::vector<std::string> odd = {"stage.0.parallel.tensor=2",
                                        "data.seq=63", "run.micro_batch=1"};
  EXPECT_EQ(WorldError(Sample(odd), 2),
            "--set stage.0.parallel.tensor=2: stage[0].parallel.tensor: 2 does "
            "not divide the 63 tokens of a rank's micro-batch (micro_batch 1 x "
            "seq 63 / context 1), which sequence = true cuts; use tensor 1, a "
            "micro_batch that is a multiple of 2, or sequence = false");
  for (const char* mend :
       {"run.micro_batch=2", "stage.0.parallel.sequence=false"}) {
    std::vector<std::string> sets = odd;
    sets.emplace_back(mend);
    EXPECT_TRUE(CheckWorld(Sample(sets), 2).ok()) << mend;
  }
}

TEST(CheckWorld, InterleavedMicroBatchesAreAMultiple) {
  const std::vector<std::string> sets = {
      "stage.0.parallel.pipeline=2", "stage.1.parallel.schedule=interleaved",
      "stage.1.batch=12"};
  EXPECT_TRUE(CheckWorld(Sample(sets), 2).ok());
  EXPECT_EQ(WorldError(Sample(sets), 4),
            "--set stage.1.batch=12: stage[1].batch: 12 is 3 micro-batches a "
            "rank (data 2 x micro_batch 2), but schedule \"interleaved\" needs "
            "a multiple of pipeline 2 (stage[1]); use 8 or 16, or micro_batch "
            "1");
  // As long as nothing says how large, it is one that does.
  const auto fitted =
      CheckWorld(*Parse(Spoiled("micro_batch = 2\n", ""), sets), 4);
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  EXPECT_EQ(fitted->run.micro_batch, 1);
  // The switch takes a batch of the next stage through this one.
  EXPECT_EQ(
      WorldError(Sample({"stage.0.parallel.pipeline=2",
                         "stage.0.parallel.schedule=interleaved",
                         "stage.1.parallel.schedule=1f1b", "stage.1.batch=2"}),
                 2),
      "--set stage.1.batch=2: stage[1].batch: 2 is 1 micro-batch a "
      "rank (data 1 x micro_batch 2), but at the switch stage[0] evaluates a "
      "batch of stage[1], and its schedule \"interleaved\" needs a multiple of "
      "pipeline 2 (stage[0]); use 4, or micro_batch 1");
}

TEST(CheckWorld, LayoutsOfStagesThatAreOverAreNotLookedAt) {
  const Recipe recipe =
      Sample({"stage.0.parallel.data=3", "stage.0.parallel.pipeline=2",
              "stage.0.parallel.schedule=interleaved", "stage.0.batch=12",
              "stage.1.parallel.schedule=1f1b", "stage.1.parallel.data=1",
              "stage.1.batch=2"});
  EXPECT_FALSE(CheckWorld(recipe, 2).ok());
  const auto fitted = CheckWorld(recipe, 2, /*planned=*/false, /*first=*/1);
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  // As they were.
  EXPECT_EQ(fitted->stages[0].parallel.data, 3);
  EXPECT_EQ(fitted->stages[1].parallel.data, 1);
}

TEST(Recipe, AStageHasThePipelineOfTheOneBefore) {
  const auto of = [](const std::vector<std::string>& sets, size_t stage) {
    return Sample(sets).stages[stage].parallel;
  };
  const ParallelConfig none = of({}, 1);
  EXPECT_EQ(none.pipeline, 1);
  EXPECT_EQ(none.schedule, PipelineSchedule::k1F1B);
  EXPECT_EQ(none.chunks, 1);
  EXPECT_EQ(none.pieces(), 1);
  const std::string pipeline = "stage.0.parallel.pipeline=2";
  const std::string turns = "stage.0.parallel.schedule=interleaved";
  EXPECT_EQ(of({pipeline}, 1).pieces(), 2);
  EXPECT_EQ(of({pipeline, turns}, 0).chunks, 2);
  EXPECT_EQ(of({pipeline, turns}, 1).pieces(), 4);
  EXPECT_EQ(of({pipeline, turns, "stage.0.parallel.chunks=3"}, 1).pieces(), 6);
  const ParallelConfig back = of({pipeline, turns, "stage.0.parallel.chunks=3",
                                  "stage.1.parallel.schedule=1f1b"},
                                 1);
  EXPECT_EQ(back.schedule, PipelineSchedule::k1F1B);
  EXPECT_EQ(back.pieces(), 2);
  // What is said of a pipeline that there is not is not looked at.
  EXPECT_EQ(of({turns}, 1).pieces(), 1);
  EXPECT_EQ(of({pipeline, "stage.0.parallel.layers=[0,4]"}, 0).layers,
            (std::vector<int64_t>{0, 4}));
  EXPECT_TRUE(
      of({pipeline, "stage.0.parallel.layers=[0,4]"}, 1).layers.empty());
}

TEST(Recipe, AStageHasTheRestOfTheLayoutOfTheOneBefore) {
  const std::string slow =
      "stage.0.parallel.rank_order=[\"pipeline\",\"data\",\"context\","
      "\"tensor\"]";
  const Recipe recipe = Sample(
      {"stage.0.parallel.tensor=2", "stage.0.parallel.context=2",
       "stage.0.parallel.sequence=false", slow,
       "stage.0.parallel.tensor_across_nodes=true", "stage.0.parallel.zero=1"});
  const ParallelConfig& after = recipe.stages[1].parallel;
  EXPECT_EQ(after.tensor, 2);
  EXPECT_EQ(after.context, 2);
  EXPECT_FALSE(*after.sequence);
  EXPECT_EQ(after.rank_order, recipe.stages[0].parallel.rank_order);
  EXPECT_EQ(after.rank_order.front(), Axis::kPipeline);
  EXPECT_TRUE(*after.tensor_across_nodes);
  EXPECT_EQ(after.zero, 0);
  const Recipe again = *Parse(ToToml(recipe));
  EXPECT_EQ(again.stages[1].parallel.rank_order, after.rank_order);
  EXPECT_FALSE(*again.stages[1].parallel.sequence);
}

TEST(Recipe, OfAPipelineOneKeyMakesOneRank) {
  const auto recipe = Parse(
      Spoiled("until = { fraction = 0.3 }",
              "until = { fraction = 0.3 }\nparallel = { pipeline = 2, schedule "
              "= \"interleaved\", chunks = 2, layers = [1, 1, 1, 1] }"),
      {"stage.0.parallel.pipeline=1"});
  ASSERT_TRUE(recipe.ok()) << recipe.status();
  EXPECT_EQ(recipe->stages[0].parallel.pieces(), 1);
  EXPECT_TRUE(CheckWorld(*recipe, 1).ok());
}

TEST(CheckWorld, BatchMustDivide) {
  EXPECT_EQ(WorldError(Sample(), 3),
            "gpt.toml:10:1: data.batch: 8 is not a multiple of 6 = data 3 x "
            "micro_batch 2 (stage[0]); use 6 or 12");
  EXPECT_EQ(WorldError(Sample(), 8),
            "gpt.toml:10:1: data.batch: 8 is not a multiple of 16 = data 8 x "
            "micro_batch 2 (stage[0]); use 16");
}

}  // namespace
}  // namespace delink::recipe_test
