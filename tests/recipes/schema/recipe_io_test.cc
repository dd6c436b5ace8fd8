// --set, the saved form, and what may change when a run resumes.
#include "recipes/schema/recipe_io.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "recipes/models/model_list.h"
#include "tests/recipes/schema/sample.h"
#include "tests/testing/source_path.h"

namespace delink::recipe_io_test {
namespace {

using ::testing::IsEmpty;

std::string SetError(const std::string& set) {
  const auto recipe = Parse(kSample, {set});
  EXPECT_FALSE(recipe.ok()) << set;
  return std::string(recipe.status().message());
}

TEST(Set, DottedKeysAndElementsOfLists) {
  const Recipe recipe = Sample(
      {"optimizer.lr=3e-4", "stage.1.parallel.data=2", "stage.0.share=groups:2",
       "run.device=cpu", "model.tied=false", "schedule.decay = 0.5",
       "optimizer.betas=[0.8, 0.9]", "stage.0.until={tokens=5120}"});
  EXPECT_EQ(recipe.optimizer.lr, 3e-4);
  EXPECT_EQ(recipe.stages[1].parallel.data, 2);
  EXPECT_EQ(ToString(recipe.stages[0].share), "groups:2");
  EXPECT_EQ(recipe.run.device, RunConfig::Device::kCpu);
  EXPECT_FALSE(GptOf(recipe).tied);
  EXPECT_EQ(recipe.schedule.decay_steps(), 50);
  EXPECT_EQ(recipe.optimizer.betas[0], 0.8);
  EXPECT_EQ(recipe.PlannedEnd(0), 10);
}

TEST(Set, LastOneWins) {
  EXPECT_EQ(Sample({"run.seed=3", "run.seed=4"}).run.seed, 4);
}

TEST(Set, ListElementsAndShareParts) {
  const Recipe recipe =
      Sample({"optimizer.betas=[0.1, 0.2]", "optimizer.betas.1=0.3",
              "stage.0.share={}", "stage.0.share.mlp=all"});
  EXPECT_EQ(recipe.optimizer.betas, (std::vector<double>{0.1, 0.3}));
  EXPECT_EQ(ToString(recipe.stages[0].share), "mlp=all");
}

TEST(Set, TextIsAStringWhereItIsNoToml) {
  EXPECT_EQ(Sample({"stage.0.name=two words"}).stages[0].name, "two words");
  EXPECT_EQ(Sample({"stage.0.name=a=b"}).stages[0].name, "a=b");
  EXPECT_EQ(Sample({"stage.0.name=2026-01-02"}).stages[0].name, "2026-01-02");
  EXPECT_EQ(Sample({"stage.0.name=\"7\""}).stages[0].name, "7");
  EXPECT_EQ(Sample({"stage.0.name=1\n[run]"}).stages[0].name, "1\n[run]");
}

TEST(Set, ErrorsNameTheSet) {
  EXPECT_EQ(SetError("optimizer.lr=fast"),
            "--set optimizer.lr=fast: optimizer.lr: expected a number, got the "
            "string \"fast\"");
  EXPECT_EQ(SetError("stage.2.name=x"),
            "--set stage.2.name=x: stage has 2 elements, counted from 0");
  EXPECT_EQ(SetError("stage.real.name=x"),
            "--set stage.real.name=x: stage is a list: name an element by its "
            "index, as in stage.0");
  EXPECT_EQ(SetError("stage=[]"),
            "--set stage=[]: stage: expected [[stage]] tables, got an empty "
            "list");
  EXPECT_EQ(SetError("optimizer.lr.x=1"),
            "--set optimizer.lr.x=1: optimizer.lr is the float 0.001, which "
            "has no keys");
  EXPECT_EQ(SetError("=1"),
            "--set =1: expected key=value, as in optimizer.lr=3e-4");
  EXPECT_EQ(SetError("run..seed=1"),
            "--set run..seed=1: a key is words with dots between them");
  EXPECT_EQ(SetError("run.0.seed=1"),
            "--set run.0.seed=1: the recipe has no list run, so no element 0");
}

// Random numbers by the name of what they are for.
class Draw {
 public:
  explicit Draw(uint64_t trial) : key_(Fold(KeyFromSeed(3), trial)) {}

  int64_t Int(int64_t low, int64_t high) {
    const auto r = Philox(key_, count_++, 0);
    const uint64_t word = (uint64_t{r[0]} << 32) | r[1];
    return low +
           static_cast<int64_t>(word % static_cast<uint64_t>(high - low + 1));
  }
  bool Flip() { return Int(0, 1) == 1; }
  // Any double in (0, 1), down to the smallest.
  double Fraction() {
    const int64_t one = std::bit_cast<int64_t>(1.0);
    return Flip()
               ? std::bit_cast<double>(Int(1, one - 1))
               : std::bit_cast<double>(Int(one - (int64_t{1} << 52), one - 1));
  }
  std::string Text() {
    static const char* const kPieces[] = {"a", "\"", "\\", "\n", "\x01", "é",
                                          " ", "#",  "'",  "=",  "\x7f", "∂"};
    std::string text;
    for (int64_t n = Int(1, 8); n > 0; --n) text += kPieces[Int(0, 11)];
    return text;
  }

 private:
  RngKey key_;
  uint64_t count_ = 0;
};

SharePolicy RandomPolicy(Draw& draw, bool shared) {
  using Kind = SharePolicy::Kind;
  if (!shared) return {Kind::kNone, 0};
  if (draw.Flip()) return {Kind::kAll, 0};
  return {draw.Flip() ? Kind::kGroups : Kind::kCycle, draw.Flip() ? 2 : 4};
}

OptimizerConfig RandomOptimizer(Draw& draw) {
  OptimizerConfig optimizer = {.lr = draw.Fraction(),
                               .betas = {draw.Fraction(), draw.Fraction()},
                               .eps = std::max(1e-30, draw.Fraction()),
                               .decay = draw.Fraction(),
                               .clip = draw.Fraction(),
                               .clip_value = draw.Fraction()};
  if (draw.Flip()) {
    optimizer.kind = OptimizerConfig::Kind::kMuon;
    optimizer.momentum = draw.Fraction();
    optimizer.nesterov = draw.Flip();
    optimizer.scale = MuonConfig::Scale::kRms;
    optimizer.adamw_lr = draw.Fraction();
  } else {
    optimizer.moments = StateStorage::kBF16;
  }
  if (draw.Flip()) {
    optimizer.groups = {
        {.match = "*/" + draw.Text() + "x", .lr_scale = draw.Fraction()},
        {.match = "*", .betas = {0.5, 0.25}}};
  }
  return optimizer;
}

void DrawPipeline(Draw& draw, int64_t blocks, ParallelConfig* parallel) {
  parallel->schedule = PipelineSchedule::k1F1B;
  parallel->chunks = 1;
  if (draw.Flip()) {
    parallel->schedule = PipelineSchedule::kInterleaved;
    parallel->chunks = 2;
  }
  if (parallel->pipeline == 1 || draw.Flip()) return;
  const int64_t pieces = parallel->pieces();
  parallel->layers.assign(static_cast<size_t>(pieces), 1);
  parallel->layers.back() += blocks - pieces;
}

// Budgets of any number of bytes, also odd ones.
void DrawOffload(Draw& draw, OffloadRules* offload) {
  if (draw.Flip()) return;
  const auto home = [&]() -> std::optional<Home> {
    if (draw.Flip()) return std::nullopt;
    return draw.Flip() ? Home::kHost : Home::kDevice;
  };
  offload->all = {home(), home(), home(), home(), home()};
  if (draw.Flip()) offload->host = draw.Int(1, int64_t{1} << 50);
  if (draw.Flip()) {
    offload->device = draw.Int(1, 5000) << (10 * draw.Int(0, 4));
    offload->all.state = Home::kAuto;
    offload->rows = {{"blocks/*", {.weights = Home::kAuto}}};
  } else if (draw.Flip()) {
    offload->resident = 0.25;
    offload->all.update = Home::kAuto;
  }
}

ParallelConfig RandomParallel(Draw& draw, int64_t data, int64_t pipeline) {
  ParallelConfig parallel;
  parallel.data = draw.Flip() ? 0 : data;
  parallel.zero = draw.Int(0, 2);
  if (parallel.zero == 2 && draw.Flip()) {
    parallel.reduce = GradientReduction::kMicroBatch;
  }
  parallel.pipeline = pipeline;
  parallel.tensor = parallel.context = 1;
  parallel.expert = draw.Int(1, 9);
  parallel.dispatch = static_cast<ExpertDispatch>(draw.Int(0, 3));
  parallel.expert_overlap = draw.Flip();
  parallel.expert_room = 0.25 * static_cast<double>(draw.Int(1, 9));
  parallel.sequence = draw.Flip();
  parallel.tensor_across_nodes = draw.Flip();
  parallel.rank_order = {Axis::kData, Axis::kTensor, Axis::kPipeline,
                         Axis::kContext};
  return parallel;
}

Recipe RandomRecipe(Draw& draw) {
  Recipe recipe;
  auto model = std::make_shared<GptConfig>();
  model->heads = draw.Int(1, 4) * 2;
  model->kv_heads = draw.Flip() ? 2 : model->heads;
  model->dim = model->heads * draw.Int(1, 64);
  model->layers = draw.Int(1, 8) * 4;
  model->ffn = draw.Int(1, 4096);
  model->vocab = draw.Int(0, 3);
  recipe.data.seq = draw.Int(1, 4096);
  model->max_seq = recipe.data.seq + draw.Int(0, 5);
  model->norm = draw.Flip() ? NormKind::kRmsNorm : NormKind::kLayerNorm;
  model->norm_eps = draw.Fraction();
  model->bias = draw.Flip();
  model->tied = draw.Flip();
  model->dropout = draw.Fraction();
  model->init_std = draw.Fraction() * 10;
  recipe.model = model;
  recipe.data.train = absl::StrCat("/", draw.Text(), "x/train");
  recipe.data.validation = absl::StrCat("/x", draw.Text(), "x");
  recipe.data.batch = draw.Int(1, 64) * 8;
  recipe.data.shuffle = draw.Flip();
  recipe.data.documents = draw.Flip() ? DataConfig::Documents::kMasked
                                      : DataConfig::Documents::kPacked;
  recipe.optimizer = RandomOptimizer(draw);
  recipe.schedule.steps = draw.Int(1000, 2'000'000);
  recipe.schedule.kind = static_cast<Schedule::Kind>(draw.Int(0, 3));
  recipe.schedule.warmup = draw.Int(0, 500);
  if (draw.Flip()) recipe.schedule.decay = draw.Fraction() / 2;
  const int64_t stages = draw.Int(1, 3);
  const int64_t data = draw.Int(1, 2), pipeline = draw.Int(1, 2);
  for (int64_t i = 0; i < stages; ++i) {
    Stage stage;
    stage.name = draw.Text() + std::to_string(i);
    // Only the first stage shares, so that no switch links.
    if (draw.Flip()) {
      stage.share.every = RandomPolicy(draw, i == 0);
    } else {
      stage.share.parts["mlp"] = RandomPolicy(draw, i == 0);
    }
    if (i + 1 < stages) {
      stage.until.steps = 100 * (i + 1);
      if (draw.Flip()) stage.until.plateau = draw.Fraction();
      stage.until.window = draw.Int(30, 1000);
    }
    if (draw.Flip()) stage.batch = draw.Int(1, 64) * 8;
    if (draw.Flip()) stage.micro_batch = 4;
    if (draw.Flip())
      stage.recompute = draw.Flip() ? Recompute::kBlock : Recompute::kNone;
    stage.calibration_batches = draw.Int(1, 9);
    stage.state = static_cast<StatePolicy>(draw.Int(0, 3));
    if (stage.state == StatePolicy::kCalibrated) {
      recipe.optimizer.clip_value = 0;
    }
    stage.warmup = draw.Int(0, 100);
    stage.lr_scale = draw.Fraction();
    stage.parallel = RandomParallel(draw, data, pipeline);
    DrawPipeline(draw, recipe.model->layers, &stage.parallel);
    DrawOffload(draw, &stage.offload);
    recipe.stages.push_back(stage);
  }
  recipe.run.seed = draw.Int(0, INT64_MAX - 1);
  recipe.run.micro_batch = draw.Flip() ? 0 : 4;
  recipe.run.threads = draw.Int(0, 3);
  recipe.run.keep = draw.Int(0, 100);
  recipe.run.probe_every = draw.Int(0, 3);
  recipe.run.recompute = draw.Flip() ? Recompute::kBlock : Recompute::kNone;
  recipe.run.watchdog = draw.Int(0, 1000);
  recipe.run.outlier = draw.Flip() ? 0 : 6.5;
  return recipe;
}

TEST(ToToml, ReadsBackEqualBitForBit) {
  for (uint64_t trial = 0; trial < 2000; ++trial) {
    Draw draw(trial);
    const Recipe recipe = RandomRecipe(draw);
    const std::string text = ToToml(recipe);
    const auto back = Parse(text);
    ASSERT_TRUE(back.ok()) << back.status() << "\n" << text;
    ASSERT_THAT(DiffRecipes(recipe, *back), IsEmpty()) << text;
    ASSERT_EQ(ToToml(*back), text);
    // Against the structs themselves, past the text that both came through.
    ASSERT_EQ(back->optimizer.lr, recipe.optimizer.lr);
    ASSERT_EQ(back->optimizer.betas, recipe.optimizer.betas);
    ASSERT_EQ(back->optimizer.momentum, recipe.optimizer.momentum);
    ASSERT_EQ(back->optimizer.groups.size(), recipe.optimizer.groups.size());
    ASSERT_EQ(back->schedule.decay, recipe.schedule.decay);
    ASSERT_EQ(back->schedule.warmup, recipe.schedule.warmup);
    ASSERT_EQ(GptOf(*back).dropout, GptOf(recipe).dropout);
    ASSERT_EQ(back->stages.size(), recipe.stages.size());
    for (size_t i = 0; i < recipe.stages.size(); ++i) {
      ASSERT_EQ(back->stages[i].share, recipe.stages[i].share);
      ASSERT_EQ(back->stages[i].name, recipe.stages[i].name);
      ASSERT_EQ(back->stages[i].offload, recipe.stages[i].offload);
      const ParallelConfig& was = recipe.stages[i].parallel;
      const ParallelConfig& is = back->stages[i].parallel;
      ASSERT_EQ(is.data, was.data);
      ASSERT_EQ(is.expert, was.expert);
      ASSERT_EQ(is.dispatch, was.dispatch);
      ASSERT_EQ(is.expert_room, was.expert_room);
      ASSERT_EQ(is.expert_overlap, was.expert_overlap);
      ASSERT_EQ(is.schedule, was.schedule);
      ASSERT_EQ(is.pieces(), was.pieces());
      ASSERT_EQ(is.layers, was.layers);
      ASSERT_EQ(is.sequence, was.sequence);
      ASSERT_EQ(is.tensor_across_nodes, was.tensor_across_nodes);
      ASSERT_EQ(is.rank_order, was.rank_order);
    }
    ASSERT_EQ(back->data.train, recipe.data.train);
    ASSERT_EQ(back->run.seed, recipe.run.seed);
  }
}

TEST(ToToml, OfTheSampleIsComplete) {
  const std::string text = ToToml(CheckWorld(Sample(), 2)->WithVocab(300));
  for (const char* line :
       {"kv_heads = 4\n", "ffn = 128\n", "vocab = 300\n",
        "train = \"/data/corpus/train\"\n", "betas = [0.9, 0.95]\n",
        "until.fraction = 0.3\n", "parallel.data = 2\n", "micro_batch = 2\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "in\n" << text;
  }
}

TEST(DiffRecipes, NamesEachKey) {
  const std::vector<Difference> diff = DiffRecipes(
      Sample(), Sample({"optimizer.lr=0.5", "model.dim=64", "run.threads=3",
                        "stage.0.until={steps=9}"}));
  std::vector<std::string> lines;
  for (const Difference& d : diff) {
    lines.push_back(d.key + " " + d.before + ">" + d.after +
                    (d.fixed ? " fixed" : ""));
  }
  EXPECT_THAT(lines,
              ::testing::UnorderedElementsAre(
                  "model.dim 32>64 fixed", "model.ffn 128>256 fixed",
                  "optimizer.lr 0.001>0.5", "run.threads >3",
                  "stage[0].until.steps >9", "stage[0].until.fraction 0.3>"));
}

TEST(CheckResume, LetsTheScheduleAndTheMachineChange) {
  const Recipe saved = Sample();
  EXPECT_TRUE(CheckResume(saved, saved).ok());
  const absl::Status status = CheckResume(
      saved,
      Sample({"optimizer.lr=0.5", "schedule.steps=200", "run.micro_batch=1",
              "stage.0.parallel.data=2", "stage.1.parallel.zero=1",
              "data.train=moved/train", "stage.0.parallel.pipeline=2",
              "stage.0.parallel.layers=[1,3]"}));
  EXPECT_TRUE(status.ok()) << status;
}

TEST(CheckResume, HoldsWhatDecidesTheRunSoFar) {
  for (const auto& [set, key] :
       std::vector<std::pair<std::string, std::string>>{
           {"model.norm_eps=0.1", "model.norm_eps"},
           {"data.batch=16", "data.batch"},
           {"run.seed=2", "run.seed"},
           {"data.shuffle=false", "data.shuffle"},
           {"data.documents=masked", "data.documents"},
           {"stage.0.share=cycle:2", "stage[0].share"}}) {
    const absl::Status status = CheckResume(Sample(), Sample({set}));
    ASSERT_FALSE(status.ok()) << set;
    EXPECT_THAT(std::string(status.message()),
                ::testing::StartsWith("--set " + set + ": " + key + ": is "));
  }
  EXPECT_EQ(
      CheckResume(Sample(),
                  *Parse(Spoiled("seq = 64", "seq = 32"), {"model.max_seq=64"}))
          .message(),
      "gpt.toml:9:1: data.seq: is 32, but the run to resume has 64; it may not "
      "change: set it back, or start a new run");
}

TEST(Shipped, RecipesAreGood) {
  int count = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(testing::SourcePath("recipes"))) {
    if (file.path().extension() != ".toml") continue;
    ++count;
    const auto recipe =
        ReadRecipe(file.path().string(), {}, KindsOf(BuiltInModels()));
    ASSERT_TRUE(recipe.ok()) << recipe.status();
    int64_t least = 1;  // ranks
    for (const Stage& stage : recipe->stages) {
      const ParallelConfig& of = stage.parallel;
      least = std::max({least, of.ranks(), of.tensor * of.context * of.pipeline,
                        of.expert * of.pipeline});
    }
    for (const int64_t ranks : {1, 2, 4}) {
      if (ranks % least != 0) continue;
      const auto fitted = CheckWorld(*recipe, ranks);
      EXPECT_TRUE(fitted.ok()) << fitted.status();
    }
  }
  EXPECT_GE(count, 7);
}

}  // namespace
}  // namespace delink::recipe_io_test
