// Bad recipes, and exactly what is said of them.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/base/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/recipes/schema/sample.h"

namespace delink::recipe_errors_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string ErrorOf(const absl::StatusOr<Recipe>& recipe) {
  EXPECT_FALSE(recipe.ok());
  EXPECT_EQ(recipe.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(recipe.status().message());
}

struct Case {
  const char* from;
  const char* to;
  const char* error;
};

class Spoil : public ::testing::TestWithParam<Case> {};

TEST_P(Spoil, IsSaidExactly) {
  const auto& [from, to, error] = GetParam();
  EXPECT_EQ(ErrorOf(Parse(Spoiled(from, to))), error);
}

TEST(Recipe, AWindowHoldsEnoughProbes) {
  EXPECT_EQ(ErrorOf(Parse(kSample,
                          {"stage.0.until.gradient=1.5",
                           "stage.0.until.window=20", "run.probe_every=10"})),
            "--set stage.0.until.window=20: stage[0].until.window: 20 steps "
            "hold fewer than 3 probes, one every 10 steps (run.probe_every); "
            "use 30");
}

// Each is all that is said, though later stages have the same pipeline.
TEST(Recipe, PipelinesThatTheModelCannotBeCutFor) {
  const std::string pipeline = "stage.0.parallel.pipeline=";
  const std::string layers = "stage.0.parallel.layers=";
  const std::string turns = "stage.0.parallel.schedule=interleaved";
  const auto expect = [](const std::vector<std::string>& sets,
                         const std::string& line) {
    EXPECT_EQ(ErrorOf(Parse(kSample, sets)), "--set " + sets[0] + ": " + line);
  };
  const std::string pieces = "stage[0].parallel.pipeline: 8 pieces ";
  expect({pipeline + "8"},
         pieces +
             "(pipeline 8), but there are 6 layers: 4 blocks, embedding, head; "
             "at most pipeline 6");
  expect({pipeline + "4", turns},
         pieces +
             "(pipeline 4 x 2 chunks), but there are 6 layers: 4 blocks, "
             "embedding, head; at most pipeline 3");
  expect({pipeline + "7", turns, "stage.0.parallel.chunks=7"},
         "stage[0].parallel.pipeline: 49 pieces (pipeline 7 x 7 chunks), but "
         "there are 6 layers: 4 blocks, embedding, head; at most pipeline 6 "
         "with schedule \"1f1b\"");
  expect({"stage.0.parallel.chunks=4", pipeline + "2", turns},
         "stage[0].parallel.chunks: 8 pieces (pipeline 2 x 4 chunks), but "
         "there are 6 layers: 4 blocks, embedding, head; at most chunks 3");
  expect({pipeline + "4", "stage.0.depth=1"},
         "stage[0].parallel.pipeline: 4 pieces (pipeline 4), but the stage "
         "visits 3 layers: 1 block, embedding, head; at most pipeline 3");
  expect({"stage.0.parallel.chunks=2", pipeline + "2"},
         "stage[0].parallel.chunks: 2 with schedule \"1f1b\"; it is 2 or more "
         "with \"interleaved\", else 1");
  expect(
      {"stage.0.parallel.chunks=1", pipeline + "2", turns},
      "stage[0].parallel.chunks: 1 with schedule \"interleaved\"; it is 2 or "
      "more with \"interleaved\", else 1");
  const std::string of_layers = "stage[0].parallel.layers: ";
  expect({layers + "[2,1,1]", pipeline + "2"},
         of_layers +
             "3 numbers, but pipeline 2 makes 2 pieces; give 2, or [] to "
             "divide the model by cost");
  expect(
      {layers + "[2,1]", pipeline + "2"},
      of_layers +
          "add up to 3, but the stage visits 4 blocks; number 1 should be 2, "
          "not 1");
  expect({layers + "[1,1]", pipeline + "2", "stage.0.depth=1"},
         of_layers +
             "add up to 2, but the stage visits 1 block; number 1 should be 0, "
             "not 1");
  expect(
      {layers + "[4,1,1]", pipeline + "3"},
      of_layers +
          "add up to 6, but the stage visits 4 blocks; number 0 should be 2, "
          "not 4");
  expect({layers + "[2,3,2,2]", pipeline + "4"},
         of_layers +
             "add up to 9, but the stage visits 4 blocks; use smaller numbers");
  expect({layers + "[2,0,2]", pipeline + "3"},
         of_layers +
             "number 1 is 0; only the first and the last piece may have no "
             "blocks, because they have the embedding and the head");
  EXPECT_EQ(ErrorOf(Parse(kSample, {layers + "[2,-1]"})),
            "--set stage.0.parallel.layers=[2,-1]:1:8: " + of_layers +
                "-1 is out of range: 0 to 16777216");
  expect({layers + "2", pipeline + "2"},
         of_layers + "expected a list of integers, got the integer 2");
  expect({"stage.1.parallel.pipeline=4", "stage.0.depth=1"},
         "stage[1].parallel.pipeline: 4 pieces (pipeline 4), but at the switch "
         "stage[0] is first laid out in these pieces and has only 3 layers: 1 "
         "block, "
         "embedding, head; at most pipeline 3");
  expect({"run.order=layer", pipeline + "2"},
         "run.order: \"layer\" needs all layers on one rank; in a pipeline "
         "(2) the schedule orders micro-batches, so leave the key out");
}

TEST(Recipe, WhatDoesNotDivideOverRanks) {
  const auto expect = [](const std::vector<std::string>& sets,
                         const std::string& line) {
    EXPECT_EQ(ErrorOf(Parse(kSample, sets)),
              "--set " + sets[0] + ": stage[0].parallel." + line);
  };
  const std::string tensor = "stage.0.parallel.tensor=";
  expect({tensor + "3"},
         "tensor: 3 does not divide model.heads 4; use tensor 2 or 4");
  expect({tensor + "8"},
         "tensor: 8 does not divide model.heads 4; use tensor 4");
  expect({tensor + "6", "model.heads=12", "model.dim=48", "model.kv_heads=4"},
         "tensor: 6 does not divide model.kv_heads 4, nor is it a multiple of "
         "that; use tensor 4 or 12");
  expect({tensor + "4", "model.ffn=130"},
         "tensor: 4 does not divide model.ffn 130; use tensor 2");
  expect({"stage.0.parallel.context=3"},
         "context: 3, but data.seq 64 is no multiple of 6: each rank has an "
         "early and a late piece of every sequence; use context 2 or 4, or "
         "data.seq 60 or 66");
  expect({"stage.0.parallel.context=64"},
         "context: 64, but data.seq 64 is no multiple of 128: each rank has an "
         "early and a late piece of every sequence; use context 32, or "
         "data.seq 128");
  const std::string order = "stage.0.parallel.rank_order=";
  for (const char* bad :
       {"[\"tensor\",\"data\"]", "[\"tensor\",\"data\",\"data\",\"pipeline\"]",
        "[\"tensor\",\"data\",\"context\",\"expert\"]"}) {
    EXPECT_THAT(ErrorOf(Parse(kSample, {order + bad})),
                HasSubstr("stage[0].parallel.rank_order: expected each of "
                          "\"tensor\", \"context\", \"data\" and "
                          "\"pipeline\" once, the fastest first"));
  }
}

TEST(Recipe, MatricesThatRanksUpdateTogetherAreNotUpdatedOnTheHost) {
  const std::vector<std::string> sets = {"stage.0.offload={update=\"host\"}",
                                         "optimizer.kind=adafactor",
                                         "stage.0.parallel.tensor=2"};
  EXPECT_THAT(
      ErrorOf(Parse(kSample, sets)),
      HasSubstr("stage[0].offload.update: \"host\", but with optimizer.kind "
                "\"adafactor\" the 2 tensor ranks update a matrix together, "
                "which only devices do; use \"device\", or tensor 1"));
  EXPECT_TRUE(Parse(kSample, {sets[0], sets[2]}).ok());
}

constexpr Case kCases[] = {
    {"heads = 4", "head = 4",
     "gpt.toml:1:2: model.heads: required, but not given (integer, at least 1: "
     "attention heads; divides dim)\ngpt.toml:5:1: model.head: unknown key; "
     "did you mean 'heads'?"},
    {"[run]", "[runs]",
     "gpt.toml:28:2: runs: unknown key; did you mean 'run'?"},
    {"lr = 1e-3", "lr = 1e-3\nnesterov = true",
     "gpt.toml:14:1: optimizer.nesterov: optimizer kind \"adamw\" has no such "
     "key; it is one of sgd, muon"},
    {"lr = 1e-3", "kind = \"lion\"\nlr = 1e-3\neps = 1e-8",
     "gpt.toml:15:1: optimizer.eps: optimizer kind \"lion\" has no such key; "
     "it is one of adamw, adafactor, muon"},
    {"lr = 1e-3",
     "kind = \"sgd\"\nlr = 1e-3\ngroup = [{ match = \"*\", betas = [0.9, 0.9] "
     "}]",
     "gpt.toml:15:25: optimizer.group[0].betas: optimizer kind \"sgd\" has no "
     "such key; it is one of adamw, lion, muon"},
    {"lr = 1e-3", "lr = 1e-3\ngroup = [{ decay = 0.1 }]",
     "gpt.toml:14:10: optimizer.group[0].match: missing; a group has match or "
     "part"},
    {"lr = 1e-3", "lr = 1e-3\ngroup = [{ match = \"*\", part = \"mlp\" }]",
     "gpt.toml:14:25: optimizer.group[0].part: a group has match or part, not "
     "both"},
    {"lr = 1e-3", "lr = 1e-3\ngroup = [{ part = \"mpl\" }]",
     "gpt.toml:14:12: optimizer.group[0].part: there is no part 'mpl'; did you "
     "mean 'mlp'?; "
     "there are attention, mlp, norm"},
    {"lr = 1e-3", "lr = 1e-3\ngroup = [{ part = \"mlp\", stage = \"psuedo\" }]",
     "gpt.toml:14:26: optimizer.group[0].stage: there is no stage 'psuedo'; "
     "did "
     "you mean 'pseudo'?; there are pseudo, real"},
    {"lr = 1e-3", "lr = 1e-3\nweight_decay = 0.1",
     "gpt.toml:14:1: optimizer.weight_decay: unknown key; did you mean "
     "'decay'?"},
    {"lr = 1e-3", "lr = 1e-3\nlearning_rate = 0.1",
     "gpt.toml:14:1: optimizer.learning_rate: unknown key; did you mean 'lr'?"},
    {"{ fraction = 0.3 }", "{ fracton = 0.3 }",
     "gpt.toml:22:11: stage[0].until.fracton: unknown key; did you mean "
     "'fraction'?"},
    {"lr = 1e-3", "",
     "gpt.toml:12:2: optimizer.lr: required, but not given (number, at least "
     "0.0, at most 1000.0: peak learning rate)"},
    {"kind = \"gpt\"\n", "",
     "gpt.toml:1:2: model.kind: required, but not given (\"gpt\": the kind of "
     "model, which decides the other keys)"},
    {"kind = \"gpt\"", "kind = \"gtp\"",
     "gpt.toml:2:8: model.kind: there is no kind of model \"gtp\"; did you "
     "mean 'gpt'?; there is \"gpt\""},
    {"layers = 4", "layers = \"4\"",
     "gpt.toml:3:10: model.layers: expected an integer, got the string \"4\""},
    {"layers = 4", "layers = 4.0",
     "gpt.toml:3:10: model.layers: expected an integer, got the float 4.0"},
    {"steps = 100", "steps = 2026-01-02",
     "gpt.toml:16:9: schedule.steps: expected an integer, got the date or time "
     "2026-01-02"},
    {"lr = 1e-3", "lr = true",
     "gpt.toml:13:6: optimizer.lr: expected a number, got true"},
    {"lr = 1e-3", "lr = nan",
     "gpt.toml:13:6: optimizer.lr: nan is out of range: at least 0.0, at most "
     "1000.0"},
    {"lr = 1e-3", "lr = 1\nbetas = [0.9, 1.0]",
     "gpt.toml:14:15: optimizer.betas: 1.0 is out of range: at least 0.0, "
     "below 1.0"},
    {"lr = 1e-3", "lr = 1\nbetas = [0.9]",
     "gpt.toml:14:9: optimizer.betas: expected 2 numbers, got 1"},
    {"lr = 1e-3", "lr = 1\nbetas = 0.9",
     "gpt.toml:14:9: optimizer.betas: expected a list of numbers, got the "
     "float 0.9"},
    {"warmup = 10", "warmup = 1.5",
     "gpt.toml:17:10: schedule.warmup: 1.5 is out of range: 0.0 to 1.0 of "
     "steps"},
    {"warmup = 10", "warmup = -1",
     "gpt.toml:17:10: schedule.warmup: -1 is out of range: 0 to 1000000000 "
     "steps"},
    {"warmup = 10", "warmup = \"x\"",
     "gpt.toml:17:10: schedule.warmup: expected steps (integer) or a fraction "
     "of steps (float), got the string \"x\""},
    {"warmup = 10", "kind = \"cosinus\"",
     "gpt.toml:17:8: schedule.kind: expected one of \"wsd\", \"cosine\", "
     "\"linear\", \"constant\", got the string \"cosinus\"; did you mean "
     "'cosine'?"},
    {"until = { fraction = 0.3 }", "until = 0.25",
     "gpt.toml:22:9: stage[0].until: expected a table, got the float 0.25; "
     "give until.fraction, until.steps or until.tokens"},
    {"\"corpus/train\"", "\"\"", "gpt.toml:8:9: data.train: is not a path"},
    {"name = \"pseudo\"", "name = \"\"",
     "gpt.toml:20:8: stage[0].name: must not be empty"},
    {"share = \"all\"", "share = { mlp = \"al\", norm = 3 }",
     "gpt.toml:21:17: stage[0].share: 'al' is no way to share: use all, "
     "groups:N, cycle:N or none\ngpt.toml:21:30: stage[0].share: expected all, "
     "groups:N, cycle:N or none, got the integer 3"},
    {"[run]\nmicro_batch = 2", "[[run]]",
     "gpt.toml:28:1: run: expected a table, got a list"},
    {"share = \"none\"", "offload = { device_budget = \"60GiB\" }",
     "gpt.toml:26:13: stage[1].offload.device_budget: unknown key; did you "
     "mean 'device'?"},
    {"share = \"none\"", "offload = { device = \"60 gigs\" }",
     "gpt.toml:26:22: stage[1].offload.device: expected a size as \"20GiB\", "
     "got the string \"60 gigs\""},
    {"share = \"none\"", "offload = { host = \"-1GiB\" }",
     "gpt.toml:26:20: stage[1].offload.host: expected a size as \"20GiB\", got "
     "the string \"-1GiB\""},
    {"share = \"none\"", "offload = { host = 0 }",
     "gpt.toml:26:20: stage[1].offload.host: expected a size as \"20GiB\", got "
     "the integer 0"},
    {"share = \"none\"", "offload = { device = \"1GiB\", resident = 0.5 }",
     "gpt.toml:26:30: stage[1].offload.resident: offload.device also decides "
     "how much stays on the device; give only one of the two"},
    {"share = \"none\"", "offload = { host = 5, state = \"auto\" }",
     "gpt.toml:26:23: stage[1].offload.state: \"auto\" needs a budget: set "
     "offload.device, the bytes of device memory that a rank may use, or give "
     "\"device\" or \"host\" here"},
    {"share = \"none\"",
     "offload = { rows = [{ match = \"*\", weights = \"auto\" }] }",
     "gpt.toml:26:36: stage[1].offload.rows[0].weights: \"auto\" needs a "
     "budget: set offload.device, the bytes of device memory that a rank may "
     "use, or give \"device\" or \"host\" here"},
    {"share = \"none\"", "parallel = { expert = 600 }",
     "gpt.toml:26:23: stage[1].parallel.expert: 600 is out of range: 1 to "
     "512"},
    {"heads = 4", "heads = 5",
     "gpt.toml:5:1: model.heads: 5 does not divide dim 32"},
    {"heads = 4", "heads = 4\nkv_heads = 3",
     "gpt.toml:6:1: model.kv_heads: 3 does not divide heads 4"},
    {"heads = 4", "heads = 4\nmax_seq = 32",
     "gpt.toml:10:1: data.seq: 64 is more than model.max_seq 32"},
    {"batch = 8", "batch = 9",
     "gpt.toml:10:1: data.batch: 9 is not a multiple of 2 = data 1 x "
     "micro_batch 2 (stage[0]); use 8 or 10"},
    {"warmup = 10", "warmup = 101",
     "gpt.toml:17:1: schedule.warmup: 101 steps are more than schedule.steps "
     "100"},
    {"warmup = 10", "warmup = 10\ndecay = 91",
     "gpt.toml:18:1: schedule.decay: warmup 10 and decay 91 steps are more "
     "than schedule.steps 100"},
    {"share = \"all\"", "share = \"groups:3\"",
     "gpt.toml:21:1: stage[0].share: groups:3 does not divide 4 layers"},
    {"share = \"all\"", "share = \"cycle:5\"",
     "gpt.toml:21:1: stage[0].share: cycle:5 does not fit 4 layers: use 1 to 4 "
     "sets"},
    {"share = \"all\"", "share = { atention = \"all\" }",
     "gpt.toml:21:1: stage[0].share: model kind \"gpt\" has no part "
     "'atention'; did you mean 'attention'?; it has attention, mlp, norm"},
    {"until = { fraction = 0.3 }", "",
     "gpt.toml:19:1: stage[0].until: not given: give one of fraction, tokens, "
     "steps (or plateau, gradient); only the last stage has none"},
    {"{ fraction = 0.3 }", "{ fraction = 0.3, steps = 3 }",
     "gpt.toml:22:1: stage[0].until: given more than once: give one of "
     "fraction, tokens, steps (or plateau, gradient); only the last stage has "
     "none"},
    {"share = \"all\"\nuntil = { fraction = 0.3 }",
     "until = { gradient = 1.5 }",
     "gpt.toml:21:11: stage[0].until.gradient: nothing is shared in this "
     "stage, so no gradients can agree; leave the key out"},
    {"share = \"none\"", "batch = 7",
     "gpt.toml:26:1: stage[1].batch: 7 is not a multiple of 2 = data 1 x "
     "micro_batch 2 (stage[1]); use 6 or 8"},
    {"{ fraction = 0.3 }", "{ steps = 100 }",
     "gpt.toml:22:1: stage[0].until: the stage ends at step 100, but the run "
     "at step 100"},
    {"{ fraction = 0.3 }", "{ fraction = 0.001 }",
     "gpt.toml:22:1: stage[0].until: the stage ends at step 0, but begins at "
     "step 0"},
    {"share = \"none\"", "until = { steps = 50 }",
     "gpt.toml:26:1: stage[1].until: the last stage ends with the run, at "
     "schedule.steps; leave the key out"},
    {"share = \"all\"", "depth = 5",
     "gpt.toml:21:1: stage[0].depth: 5 is more than model.layers 4"},
    {"share = \"none\"", "depth = 0",
     "gpt.toml:26:9: stage[1].depth: 0 is out of range: at least 1"},
    {"share = \"none\"", "depth = 3",
     "gpt.toml:26:1: stage[1].depth: 3 is fewer than the 4 blocks that "
     "stage[0] visits; a later stage must visit at least as many"},
    {"share = \"none\"", "grow = \"copy\"",
     "gpt.toml:26:1: stage[1].grow: stage[0] visits all 4 blocks that this one "
     "does, so no blocks are added; leave the key out"},
    {"share = \"all\"", "depth = 1\ngrow = \"zero\"",
     "gpt.toml:22:1: stage[0].grow: the first stage begins with initial "
     "weights, so no blocks are added; leave the key out"},
    {"share = \"all\"", "share = \"groups:2\"\ndepth = 2",
     "gpt.toml:21:1: stage[0].share: attention \"groups:2\" has 2 sets, but "
     "the stage visits blocks of only 1 of them (0,1); give it fewer sets, or "
     "a depth and visit that reach them all"},
    {"share = \"all\"",
     "share = \"all\"\nparallel = { zero = 1, reduce = \"micro_batch\" }",
     "gpt.toml:22:24: stage[0].parallel.reduce: \"micro_batch\", but zero = 1 "
     "keeps whole gradients; use zero = 2 or 3, or reduce \"step\""},
    {"share = \"all\"", "share = \"all\"\nparallel = { zero = 2, shard = 2 }",
     "gpt.toml:22:24: stage[0].parallel.shard: 2, but zero = 2 keeps whole "
     "weights; use zero = 3, or leave shard out"},
    {"until = { fraction = 0.3 }", "depth = 1\nuntil = { gradient = 1.5 }",
     "gpt.toml:23:11: stage[0].until.gradient: nothing is shared in this "
     "stage, so no gradients can agree; leave the key out"},
    {"name = \"real\"", "name = \"pseudo\"",
     "gpt.toml:25:1: stage[1].name: stage[0] has the name 'pseudo' already"},
    // The square of what Adafactor is given, too, is a number of fp32.
    {"lr = 1e-3", "kind = \"adafactor\"\nlr = 1e-3\neps = 1e-25",
     "gpt.toml:15:1: optimizer.eps: 1e-25 is so small that optimizer kind "
     "\"adafactor\" would divide by 0 in fp32; give at least 1.1e-19, or leave "
     "the key out"},
    {"lr = 1e-3", "lr = 1e-3\neps = 1e-50",
     "gpt.toml:14:1: optimizer.eps: 1e-50 is so small that optimizer kind "
     "\"adamw\" would divide by 0 in fp32; give at least 1.2e-38, or leave the "
     "key out"},
    {"lr = 1e-3", "kind = \"muon\"\nlr = 0\nadamw_lr = 1e-3",
     "gpt.toml:15:1: optimizer.adamw_lr: 0.001 has no effect, because lr 0 "
     "makes every learning rate 0; set lr, and freeze matrices with a group "
     "that has lr_scale = 0"}};
INSTANTIATE_TEST_SUITE_P(All, Spoil, ::testing::ValuesIn(kCases));

TEST(RecipeErrors, TheLeastEpsIsTaken) {
  EXPECT_EQ(*Sample({"optimizer.kind=adafactor", "optimizer.eps=1.1e-19"})
                 .optimizer.eps,
            1.1e-19);
  const auto f = static_cast<float>(1.1e-19);
  EXPECT_TRUE(std::isnormal(f * f));
  EXPECT_TRUE(std::isnormal(1.2e-38F));
}

TEST(RecipeErrors, WhatCalibrationDoesNotSee) {
  const std::vector<std::string> sets = {"optimizer.clip_value=0.5",
                                         "stage.1.state=calibrated"};
  EXPECT_EQ(ErrorOf(Parse(kSample, sets)),
            "--set stage.1.state=calibrated: stage[1].state: \"calibrated\" "
            "does not see what optimizer.clip_value 0.5 cuts off; clip by norm "
            "alone (optimizer.clip), or use \"scale\" or \"reset\"");
}

TEST(RecipeErrors, LaterStagesKeepTheirBlocks) {
  EXPECT_EQ(ErrorOf(Parse(kSample, {"model.layers=5", "stage.0.depth=2",
                                    "stage.1.depth=3", "stage.0.visit=even",
                                    "stage.1.visit=even"})),
            "--set stage.1.depth=3: stage[1].depth: the stage visits blocks "
            "0,1,3, but not block 2, which stage[0] visits; \"even\" keeps all "
            "if the depth is a multiple of the previous depth");
  EXPECT_EQ(ErrorOf(Parse(kSample, {"stage.0.depth=2", "stage.1.depth=2",
                                    "stage.1.visit=even"})),
            "--set stage.1.visit=even: stage[1].visit: the stage visits blocks "
            "0,2, but not block 1, which stage[0] visits; \"even\" keeps all "
            "if the depth is a multiple of the previous depth");
}

TEST(RecipeErrors, CalibrationMeasuresNoNewBlocks) {
  EXPECT_EQ(
      ErrorOf(Parse(kSample, {"stage.0.depth=2", "stage.1.state=calibrated"})),
      "--set stage.1.state=calibrated: stage[1].state: \"calibrated\" "
      "measures each block's share of a shared gradient, and new blocks have "
      "none; if the depth grows, use \"scale\", \"copy\" or \"reset\"");
}

TEST(RecipeErrors, LaterStageCannotLink) {
  EXPECT_EQ(
      ErrorOf(Parse(kSample, {"stage.0.share=groups:2",
                              "stage.1.share={mlp=\"cycle:2\"}"})),
      "--set stage.1.share={mlp=\"cycle:2\"}: stage[1].share: mlp \"cycle:2\" "
      "shares weights between layers that do not share them in stage[0] "
      "\"groups:2\"; a later stage can only remove sharing");
}

TEST(RecipeErrors, EveryProblemIsToldAtOnceInOrder) {
  EXPECT_EQ(ErrorOf(Parse("[model]\nkind = \"gpt\"\nlayers = 0\ndim = 32\n"
                          "heads = 4\n[data]\ntrain = 3\nbatch = 8\n"
                          "[optimizer]\nlr = 1\n[schedule]\nsteps = 10\n",
                          {"run.sed=1", "x"})),
            "gpt.toml:3:10: model.layers: 0 is out of range: 1 to 16777216\n"
            "gpt.toml:7:9: data.train: expected a path, got the integer 3\n"
            "--set x: expected key=value, as in optimizer.lr=3e-4\n"
            "--set run.sed=1: run.sed: unknown key; did you mean 'seed'?");
}

TEST(RecipeErrors, OfVeryManyProblemsTheFirstAreTold) {
  std::string text = kSample;
  for (int i = 0; i < 1000; ++i) text += "[[stage]]\nnaem = 1\n";
  const std::string error = ErrorOf(Parse(text));
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 20);
  EXPECT_THAT(error, StartsWith("gpt.toml:31:1: stage[2].naem: unknown key"));
  EXPECT_THAT(error, ::testing::EndsWith("\nand 980 more"));
}

TEST(RecipeErrors, Syntax) {
  EXPECT_EQ(ErrorOf(Parse("a = 1\na = 2")),
            "gpt.toml:2:5: Error while parsing key-value pair: cannot redefine "
            "existing integer 'a'");
  EXPECT_THAT(ErrorOf(Parse("[a]\nb = 1\n[a]\n")),
              StartsWith("gpt.toml:3:1: "));
  EXPECT_THAT(ErrorOf(Parse("a = 99999999999999999999")),
              HasSubstr("not representable in 64 bits"));
  EXPECT_THAT(ErrorOf(Parse("a = \"\xff\xfe\"")), HasSubstr("utf-8"));
  EXPECT_THAT(ErrorOf(Parse("a = ")), StartsWith("gpt.toml:1:"));
  EXPECT_THAT(ErrorOf(Parse(std::string("a = 1\n\0b", 8))),
              StartsWith("gpt.toml:2:"));
  EXPECT_THAT(ErrorOf(Parse(std::string(100'000, '['))),
              StartsWith("gpt.toml:1:"));
  EXPECT_THAT(ErrorOf(Parse("a = " + std::string(100'000, '['))),
              StartsWith("gpt.toml:1:"));
}

// Depth costs stack in a recursive reader.
TEST(RecipeErrors, DeepKeysAndValues) {
  std::string key = "a";
  for (int i = 0; i < 200; ++i) key += ".a";
  EXPECT_THAT(ErrorOf(Parse("\n" + key + ".a = 1")),
              StartsWith("gpt.toml:2:1: more than 200 dots in one line"));
  EXPECT_THAT(ErrorOf(Parse("[" + std::string(100'000, '.') + "]")),
              StartsWith("gpt.toml:1:1: more than 200 dots in one line"));
  std::string deepest = "[" + key + "]\n" + key + " = ";
  for (int i = 0; i < 7; ++i) deepest += "[\n{ " + key + " = ";
  deepest += "1";
  for (int i = 0; i < 7; ++i) deepest += " }\n]";
  EXPECT_THAT(ErrorOf(Parse(deepest)), HasSubstr("nested too deep"));
  EXPECT_THAT(ErrorOf(Parse(kSample, {key + "=1"})),
              HasSubstr("no key has that many dots"));
}

TEST(RecipeErrors, EmptyRecipeSaysWhatItNeeds) {
  EXPECT_EQ(ErrorOf(Parse("")),
            "gpt.toml: model.kind: required, but not given (\"gpt\": the kind "
            "of model, which decides the other keys)\n"
            "gpt.toml: data.train: required, but not given (path: the training "
            "corpus: a folder that `delink data build` wrote (or `train` in "
            "it), relative to the recipe. For several corpora use "
            "`[[data.source]]` instead)\n"
            "gpt.toml: data.batch: required, but not given (integer, at least "
            "1: sequences per optimizer step over all ranks, a multiple of "
            "data ranks x micro_batch)\n"
            "gpt.toml: optimizer.lr: required, but not given (number, at least "
            "0.0, at most 1000.0: peak learning rate)\n"
            "gpt.toml: schedule.steps: required, but not given (integer, at "
            "least 1: optimizer steps of the whole run)");
}

TEST(RecipeErrors, MoreTokensThanCanBeCounted) {
  EXPECT_EQ(ErrorOf(Parse(kSample, {"data.seq=16777216", "data.batch=16777216",
                                    "schedule.steps=1000000000"})),
            "--set schedule.steps=1000000000: schedule.steps: steps x batch x "
            "seq are 2.8e+23 tokens, more than can be counted");
}

class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("delink_recipe_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  absl::StatusOr<Recipe> Read(const std::string& path) {
    return ReadRecipe(path, {}, {GptKind()});
  }

  std::filesystem::path folder_;
};

TEST_F(Files, PathsAreRelativeToTheRecipe) {
  const auto recipe = Read(Write("good.toml", kSample));
  ASSERT_TRUE(recipe.ok()) << recipe.status();
  EXPECT_EQ(recipe->data.train, (folder_ / "corpus/train").string());
}

TEST_F(Files, APathOfTheCommandLineMayLieInTheCurrentFolder) {
  const std::string good = Write("good.toml", kSample);
  const auto before = std::filesystem::current_path();
  std::filesystem::create_directories(folder_ / "here/text");
  std::filesystem::current_path(folder_ / "here");
  const auto set = ReadRecipe(good, {"data.train=text"}, {GptKind()});
  std::filesystem::create_directories(folder_ / "text");
  const auto both = ReadRecipe(good, {"data.train=text"}, {GptKind()});
  std::filesystem::current_path(before);
  EXPECT_EQ(ErrorOf(set), "--set data.train=text: data.train: there is no " +
                              (folder_ / "text").string() +
                              ": a path in a recipe is relative to the "
                              "recipe's folder; the current folder has " +
                              (folder_ / "here/text").string());
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->data.train, (folder_ / "text").string());
}

TEST_F(Files, ACorpusIsNamedByTheFolderOfBothSides) {
  for (const char* side : {"corpus/train", "corpus/validation"}) {
    std::filesystem::create_directories(folder_ / side);
    Write(std::string(side) + "/SHA256SUMS", "");
  }
  const std::string good = Write("good.toml", kSample);
  const auto sides = ReadRecipe(good, {}, {GptKind()});
  const auto both = ReadRecipe(good, {"data.train=corpus"}, {GptKind()});
  const auto given = ReadRecipe(
      good, {"data.train=corpus", "data.validation=corpus"}, {GptKind()});
  ASSERT_TRUE(sides.ok() && both.ok() && given.ok()) << given.status();
  EXPECT_EQ(both->data.train, (folder_ / "corpus/train").string());
  EXPECT_EQ(ToToml(*both), ToToml(*sides));
  EXPECT_EQ(ToToml(*given), ToToml(*sides));
}

TEST_F(Files, Missing) {
  const std::string path = (folder_ / "none.toml").string();
  const auto recipe = Read(path);
  EXPECT_EQ(recipe.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(recipe.status().message(), path + ": there is no such recipe");
}

TEST_F(Files, Folder) {
  EXPECT_EQ(ErrorOf(Read(folder_.string())),
            folder_.string() + ": is a folder; name the recipe file in it");
}

TEST_F(Files, Empty) {
  const std::string path = Write("empty.toml", "");
  EXPECT_THAT(ErrorOf(Read(path)), StartsWith(path + ": model.kind: required"));
}

TEST_F(Files, TooLarge) {
  const std::string path = Write("large.toml", std::string(2 << 20, '#'));
  EXPECT_EQ(ErrorOf(Read(path)),
            path + ": larger than 1 MiB, too large for a recipe");
}

TEST_F(Files, NotReadable) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read every file";
  const std::string path = Write("secret.toml", kSample);
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  EXPECT_EQ(ErrorOf(Read(path)), path + ": cannot be read");
}

// Whatever a damaged file holds, it is read or refused with its place.
TEST(RecipeErrors, DamagedTextNeverCrashes) {
  const std::string good = kSample;
  int refused = 0;
  for (uint64_t trial = 0; trial < 3000; ++trial) {
    std::string text = good;
    const RngKey key = Fold(KeyFromSeed(7), trial);
    const auto r = Philox(key, 0, 0);
    const size_t at = r[0] % text.size();
    switch (r[1] % 4) {
      case 0:
        text[at] = static_cast<char>(r[2]);
        break;
      case 1:
        text.resize(at);
        break;
      case 2:
        text.erase(at, r[2] % 16);
        break;
      default:
        text.insert(at, good.substr(r[2] % good.size(), r[3] % 24));
    }
    const auto recipe = Parse(text);
    if (recipe.ok()) continue;
    ++refused;
    EXPECT_THAT(std::string(recipe.status().message()), StartsWith("gpt.toml"))
        << text;
  }
  EXPECT_GT(refused, 1500);
}

}  // namespace
}  // namespace delink::recipe_errors_test
