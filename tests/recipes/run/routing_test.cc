// What a run of a model with experts records of its routers, and the biases
// that follow from it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/log.h"
#include "framework/device/backend.h"
#include "framework/optim/find_kernels.h"
#include "recipes/saved/inspect.h"
#include "tests/recipes/run/marked_models.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::routing_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr int64_t kSteps = 20, kSwitch = 10;  // recipes/tiny_moe.toml
constexpr int64_t kTokens = 8 * 32;           // of a step
constexpr int64_t kExperts = 8;

std::vector<Json> Routing(const TinyRuns& runs, const std::string& out) {
  std::vector<Json> rows = runs.RowsOf(out, {"routing", "skipped"});
  std::erase_if(rows, [](const Json& row) { return !row.contains("routing"); });
  return rows;
}

std::vector<double> Choices(const Json& row, size_t layer) {
  return row["routing"]["choices"][layer];
}

double Sum(const std::vector<double>& of) {
  return std::accumulate(of.begin(), of.end(), 0.0);
}

// Every token counts once: whatever is recomputed, cut or left on the host.
TEST(Routing, CountsEveryChoiceOnce) {
  const TinyRuns runs("tiny_moe");
  const std::string none = "stage.0.share=none";
  runs.Go({.sets = {none}, .out = "one"});
  const std::vector<Json> rows = Routing(runs, "one");
  ASSERT_EQ(rows.size(), size_t{kSteps});
  for (const Json& row : rows) {
    const std::vector<std::string> layers = row["routing"]["layers"];
    EXPECT_THAT(layers, ElementsAre("blocks/1", "blocks/2", "blocks/3"));
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      const std::vector<double> choices = Choices(row, layer);
      EXPECT_EQ(Sum(choices), 2 * kTokens);
      const std::vector<double> load = row["routing"]["load"][layer];
      const double mean = 2 * kTokens / double{kExperts};
      EXPECT_EQ(load.front(), *std::ranges::min_element(choices) / mean);
      EXPECT_EQ(load.back(), *std::ranges::max_element(choices) / mean);
      EXPECT_EQ(row["routing"]["max_violation"][layer], load.back() - 1);
    }
    EXPECT_THAT(row["routing"]["dropped"].get<std::vector<double>>(), Each(0));
  }
  runs.Go({.sets = {none, "run.recompute=block"}, .out = "block"});
  EXPECT_EQ(Routing(runs, "block"), rows);
  runs.Go({.ranks = 2,
           .sets = {none, "stage.0.parallel.pipeline=2"},
           .out = "pipeline"});
  EXPECT_EQ(Routing(runs, "pipeline"), rows);
  runs.Go({.sets = {none, "stage.0.offload.update=host",
                    "stage.0.offload.state=host"},
           .out = "host"});
  EXPECT_EQ(Routing(runs, "host"), rows);
  for (const char* const axis : {"data", "tensor", "context"}) {
    SCOPED_TRACE(axis);
    runs.Go({.ranks = 2,
             .sets = {none, absl::StrCat("stage.0.parallel.", axis, "=2")},
             .out = axis});
    for (const Json& row : Routing(runs, axis)) {
      EXPECT_EQ(Sum(Choices(row, 0)), 2 * kTokens);
    }
    // The first step's weights are the same.
    EXPECT_EQ(Choices(Routing(runs, axis)[0], 2), Choices(rows[0], 2));
  }
}

// A bias moves against the load that was recorded: of all layers that share it,
// then of its own. It stays where it is if a step is skipped.
TEST(Routing, BiasesFollowLoads) {
  const TinyRuns runs("tiny_moe", MarkedText(kSteps * 8 * 10 / 9 + 10, 32));
  runs.Go({.sets = {"optimizer.skip.nonfinite=true"},
           .out = "run",
           .models = MarkedModels});
  std::vector<std::vector<float>> biases(3, std::vector<float>(kExperts));
  const std::vector<Json> rows = Routing(runs, "run");
  ASSERT_EQ(rows.size(), size_t{kSteps});
  int64_t skipped = 0;
  for (int64_t step = 1; step <= kSteps; ++step) {
    if (rows[step - 1].contains("skipped")) {
      ++skipped;
      continue;
    }
    for (size_t layer = 0; layer < 3; ++layer) {
      std::vector<double> loads(kExperts);
      for (size_t other = 0; other < 3; ++other) {
        if (step > kSwitch && other != layer) continue;
        const std::vector<double> more = Choices(rows[step - 1], other);
        for (size_t e = 0; e < kExperts; ++e) loads[e] += more[e];
      }
      const double mean = Sum(loads) / kExperts;
      for (size_t e = 0; e < kExperts; ++e) {
        const float sign = loads[e] < mean ? 1 : loads[e] > mean ? -1 : 0;
        biases[layer][e] += sign * 1e-3F;
      }
    }
  }
  EXPECT_EQ(skipped, 1);
  const Tensors tensors = runs.Load("run", kSteps);
  for (size_t layer = 0; layer < 3; ++layer) {
    const std::string name =
        absl::StrCat("/model/blocks/", layer + 1, "/moe/router/bias");
    EXPECT_EQ(tensors.at(name), biases[layer]) << name;
  }
}

// An expert without tokens has a gradient of zero, with which its moments and
// weights still decay and its moments still move it: bit for bit as in a step
// of AdamW by itself (NVIDIA-NeMo/Automodel#2995).
TEST(Routing, IdleExpertsAreUpdated) {
  const TinyRuns runs("tiny_moe");
  constexpr int64_t kMany = 64, kLast = 4;
  runs.Go({.sets = {"stage.0.share=none", "model.experts=64", "data.batch=1",
                    "run.micro_batch=1", "run.checkpoint_every=1"},
           .out = "run",
           .until_step = kLast});
  const std::vector<Json> rows = Routing(runs, "run");
  Tensors replayed = runs.Load("run", kLast - 1);
  const Tensors last = runs.Load("run", kLast);
  const UpdateControl control{.lr = runs.Steps("run").back().lr,
                              .clip_factor = 1};
  const std::unique_ptr<Device> device = NewCpuDevice();
  int64_t moved = 0;
  for (const char* const matrix : {"gate_up", "down"}) {
    for (size_t layer = 0; layer < 3; ++layer) {
      const std::string name = absl::StrCat("blocks/", layer + 1,
                                            "/moe/experts/", matrix, "/weight");
      const std::string paths[] = {"/model/" + name,
                                   "/optimizer/" + name + "/m",
                                   "/optimizer/" + name + "/v"};
      const size_t each = last.at(paths[0]).size() / kMany;
      const std::vector<float> zeros(each);
      const auto expert = [&](const Tensors& of, int i, size_t e) {
        return std::span(of.at(paths[i])).subspan(e * each, each);
      };
      for (size_t e = 0; e < kMany; ++e) {
        if (Choices(rows.back(), layer)[e] > 0) continue;
        const auto begin = [&](int i) {
          return replayed.at(paths[i]).data() + e * each;
        };
        moved += *begin(1) != 0 ? 1 : 0;
        FindOptimKernels(DeviceKind::kCpu, DType::kF32)
            ->adamw(*device->NewStream(), {.p = begin(0),
                                           .g = zeros.data(),
                                           .m = begin(1),
                                           .v = begin(2),
                                           .n = static_cast<int64_t>(each),
                                           .beta1 = 0.9,
                                           .beta2 = 0.95,
                                           .eps = 1e-8,
                                           .decay = 0.1,
                                           .update = kLast,
                                           .control = &control});
        for (const int i : {0, 1, 2}) {
          EXPECT_TRUE(
              std::ranges::equal(expert(last, i, e), expert(replayed, i, e)))
              << paths[i] << " " << e;
        }
      }
    }
  }
  EXPECT_GT(moved, 10);
}

// With aux_over = "batch" the auxiliary loss has the loads of the last step, of
// all layers that share a router, and of all ranks.
TEST(Routing, LoadsAreThoseOfTheLastStep) {
  const TinyRuns runs("tiny_moe");
  runs.Go({.sets = {"model.router.aux_over=batch", "model.router.aux_loss=0.1"},
           .out = "run"});
  const std::vector<Json> rows = Routing(runs, "run");
  for (const int64_t step : {kSwitch, int64_t{kSteps}}) {
    const Tensors tensors = runs.Load("run", step);
    for (size_t layer = 0; layer < 3; ++layer) {
      std::vector<double> loads(kExperts);
      for (size_t other = 0; other < 3; ++other) {
        if (step > kSwitch && other != layer) continue;
        const std::vector<double> more = Choices(rows[step - 1], other);
        for (size_t e = 0; e < kExperts; ++e) loads[e] += more[e];
      }
      const double all = Sum(loads);
      std::vector<float> relative;
      for (const double load : loads) {
        relative.push_back(static_cast<float>(load * kExperts / all));
      }
      const std::string name =
          absl::StrCat("/model/blocks/", layer + 1, "/moe/router/loads");
      EXPECT_EQ(tensors.at(name), relative) << name << " " << step;
    }
  }
}

// How a batch is cut makes no difference but rounding (Megatron-LM#5798): to
// the loss over sequences at all, and to that over the batch in two steps: in
// the first, all loads are taken to be equal.
TEST(Routing, TheAuxiliaryLossDoesNotHangOnMicroBatches) {
  const TinyRuns runs("tiny_moe");
  for (const char* const over : {"sequence", "batch"}) {
    std::vector<Json> first;
    for (const auto& [ranks, micro_batch] :
         {std::pair{1, 2}, {2, 1}, {2, 4}, {1, 8}}) {
      SCOPED_TRACE(absl::StrCat(over, " ", ranks, " ", micro_batch));
      runs.Go({.ranks = ranks,
               .sets = {absl::StrCat("model.router.aux_over=", over),
                        "model.router.aux_loss=0.1",
                        absl::StrCat("run.micro_batch=", micro_batch)},
               .out = "run",
               .until_step = 2,
               .overwrite = true});
      const std::vector<Json> rows = Routing(runs, "run");
      ASSERT_EQ(rows.size(), 2u);
      if (first.empty()) first = rows;
      for (size_t i = 0; i < 2; ++i) {
        for (size_t layer = 0; layer < 3; ++layer) {
          const double loss = first[i]["routing"]["aux_loss"][layer];
          EXPECT_NEAR(rows[i]["routing"]["aux_loss"][layer], loss, 1e-4 * loss);
        }
      }
    }
  }
}

// Tokens compete for capacity across tensor and context ranks.
TEST(Routing, CapacityIsOfAMicroBatchOnAnyRanks) {
  const TinyRuns runs("tiny_m6");
  for (const char* const drop : {"probability", "position"}) {
    const std::vector<std::string> sets = {
        "model.capacity=0.75", absl::StrCat("model.router.drop=", drop)};
    const std::string one = absl::StrCat("one_", drop);
    runs.Go({.sets = sets, .out = one, .until_step = kSwitch + 2});
    const std::vector<Json> rows = Routing(runs, one);
    for (const char* const layout :
         {"tensor=2", "context=2", "tensor=2, context=2"}) {
      SCOPED_TRACE(absl::StrCat(drop, " ", layout));
      std::vector<std::string> changed = sets;
      for (const char* const stage : {"0", "1"}) {
        changed.push_back(
            absl::StrCat("stage.", stage, ".parallel={", layout, "}"));
      }
      const int ranks = std::string_view(layout).size() > 9 ? 4 : 2;
      runs.Go({.ranks = ranks,
               .sets = changed,
               .out = "ranks",
               .until_step = kSwitch + 2,
               .overwrite = true});
      const std::vector<Json> others = Routing(runs, "ranks");
      ASSERT_EQ(others.size(), rows.size());
      // The first step's weights are the same, so its choices are.
      EXPECT_EQ(others[0]["routing"]["choices"], rows[0]["routing"]["choices"]);
      EXPECT_EQ(others[0]["routing"]["dropped"], rows[0]["routing"]["dropped"]);
      const std::vector<Step> steps = runs.Steps("ranks");
      const std::vector<Step> expected = runs.Steps(one);
      ASSERT_EQ(steps.size(), expected.size());
      for (size_t i = 0; i < steps.size(); ++i) {
        EXPECT_NEAR(steps[i].loss, expected[i].loss, 1e-3 * expected[i].loss)
            << steps[i].step;
      }
      EXPECT_NEAR(steps[0].grad_norm, expected[0].grad_norm,
                  1e-5 * expected[0].grad_norm);
    }
  }
}

// Weights of zero stay zero and make all scores equal, so that biases alone
// choose: in step n all tokens choose the experts 2 n - 2 and 2 n - 1, which
// one rank of four has. What steps record, and what finds no room, is thus
// known.
TEST(Routing, AreExactWhereBiasesAloneChoose) {
  const TinyRuns runs("tiny_moe");
  constexpr int64_t kKnown = 4, kCapacity = 8, kMicroBatch = 64;
  const struct {
    int ranks;
    const char* parallel;
    double lost = 0;  // of 3 layers
  } layouts[] = {
      {1, "{}"},
      {4, "{data=2, tensor=2}"},
      {4, "{context=2, tensor=2}"},
      {4, "{data=4, expert=4, dispatch='gather'}"},
      {4, "{tensor=2, data=2, expert=4, dispatch='gather'}"},
      // Each rank has 128 choices for one rank, and 64 slots; or two ranks of
      // its machine have 256, and 128 slots. With a capacity, the validation at
      // the end is the first pass that lacks room.
      {4, "{data=4, expert=4, dispatch='all-to-all'}", 3 * 4 * 64},
      {4, "{data=4, expert=4, dispatch='deduplicated'}", 3 * 2 * 128}};
  for (const bool drops : {false, true}) {
    for (const auto& layout : layouts) {
      SCOPED_TRACE(absl::StrCat(layout.parallel, drops ? ", drops" : ""));
      SetLogLevel(LogLevel::kWarning);
      runs.Go({.ranks = layout.ranks,
               .sets = {"stage.0.share=none", "model.init_std=0",
                        absl::StrCat("model.capacity=", drops ? 0.5 : 0.0),
                        absl::StrCat("stage.0.parallel=", layout.parallel)},
               .out = "run",
               .until_step = kKnown,
               .overwrite = true,
               .ranks_per_node = layout.ranks / 2});
      SetLogLevel(LogLevel::kError);
      const std::vector<Json> rows = Routing(runs, "run");
      ASSERT_EQ(rows.size(), size_t{kKnown});
      for (size_t step = 0; step < kKnown; ++step) {
        std::vector<double> choices(kExperts);
        choices[2 * step] = choices[2 * step + 1] = kTokens;
        const Json& routing = rows[step]["routing"];
        for (size_t layer = 0; layer < 3; ++layer) {
          EXPECT_EQ(Choices(rows[step], layer), choices) << step;
          EXPECT_EQ(routing["max_violation"][layer], kExperts / 2 - 1);
          EXPECT_EQ(routing["load"][layer], Json({0, 0, 0, 1, 4}));
          EXPECT_EQ(routing["dropped"][layer],
                    drops ? 1 - double{kCapacity} / kMicroBatch : 0);
        }
      }
      const std::string warning = absl::StrCat(
          "warning: ", layout.lost,
          " choices of experts found no room on their ranks; there is room for "
          "4 times the mean from now on\n");
      EXPECT_EQ(*ReadFile(runs.Folder("run") + "/log.txt"),
                layout.lost > 0 ? warning : "");
    }
  }
}

TEST(Routing, CapacityDropsWhatIsAboveIt) {
  const TinyRuns runs("tiny_m6");
  runs.Go({.sets = {"model.capacity=0.5"}, .out = "half"});
  const std::vector<Json> rows = Routing(runs, "half");
  for (const Json& row : rows) {
    // Each expert keeps half of the mean at most.
    for (const double dropped : row["routing"]["dropped"]) {
      EXPECT_GE(dropped, 0.5);
      EXPECT_LT(dropped, 1);
    }
  }
  // 2 sequences of 32, 2 experts of a prototype.
  runs.Go({.sets = {"model.capacity=2"}, .out = "all"});
  runs.Go({.sets = {"model.capacity=0"}, .out = "none"});
  runs.ExpectSameBits("all", "none", kSteps);
}

// The run ends as for any step that is not finite, and says whether a router is
// the cause: weights grow by 10^12 a step, until they overflow.
TEST(Routing, ARouterThatIsNotFiniteIsNamed) {
  const TinyRuns runs("tiny_moe");
  const auto end = [&](const std::string& weights, int ranks) {
    const absl::Status status = runs.Run(
        {.ranks = ranks,
         .sets = {"stage.0.share=none", "optimizer.lr=1000",
                  "model.router.aux_loss=0", "model.router.z_loss=0",
                  absl::StrCat(
                      "optimizer.group=[{match='", weights,
                      "',lr_scale=1e6,decay=1000.0},{match='*',lr_scale=0}]")},
         .out = "wild",
         .overwrite = true});
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    return std::string(status.message());
  };
  const auto told = [](const char* what) {
    return HasSubstr(absl::StrCat(
        "step 5: the loss or its gradient is not finite: rank 0: the ", what,
        " of the router of blocks/1 is not finite (micro-batch 0, sequence 0, "
        "token 0); nothing was updated"));
  };
  EXPECT_THAT(end("*/router/weight", 1), told("output"));
  EXPECT_THAT(end("*/router/weight", 2), told("output"));
  EXPECT_THAT(end("blocks/1/attn/out/weight", 1), told("input"));
}

// From the row of the checkpoint's step, and from the checkpoint.
TEST(Routing, InspectShowsLoadsAndBiases) {
  const TinyRuns runs("tiny_moe");
  runs.Go({.out = "run"});
  const std::vector<Json> rows = Routing(runs, "run");
  for (const int64_t step : {kSwitch, kSteps}) {
    const std::string path = runs.Checkpoint("run", step);
    const auto seen = InspectCheckpoint(path, BuiltInModels());
    ASSERT_TRUE(seen.ok()) << seen.status();
    EXPECT_EQ(seen->routers.step, step);
    ASSERT_EQ(seen->routers.layers.size(), size_t{3});
    const Tensors tensors = runs.Load("run", step);
    const Json told = Json::parse(ToJson(*seen));
    EXPECT_EQ(told["load_step"], step);
    for (size_t i = 0; i < 3; ++i) {
      const RouterOfLayer& router = seen->routers.layers[i];
      EXPECT_EQ(router.layer, absl::StrCat("blocks/", i + 1));
      const Json& routing = rows[step - 1]["routing"];
      EXPECT_EQ(Json(router.load), routing["load"][i]);
      EXPECT_EQ(router.max_violation(), routing["max_violation"][i]);
      const std::vector<float>& bias =
          tensors.at(absl::StrCat("/model/blocks/", i + 1, "/moe/router/bias"));
      EXPECT_EQ(router.bias->first, *std::ranges::min_element(bias));
      EXPECT_EQ(router.bias->second, *std::ranges::max_element(bias));
      EXPECT_EQ(told["routers"][i]["load"], routing["load"][i]);
    }
    EXPECT_THAT(ToText(*seen), HasSubstr(absl::StrCat("loads of step ", step)));
  }
  // Without its run.
  std::filesystem::copy(runs.Checkpoint("run", kSteps), runs.Folder("alone"));
  const auto alone = InspectCheckpoint(runs.Folder("alone"), BuiltInModels());
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_EQ(alone->routers.layers.size(), size_t{3});
  EXPECT_THAT(ToText(*alone), HasSubstr("loads are not known"));
  EXPECT_TRUE(Json::parse(ToJson(*alone))["load_step"].is_null());
  const TinyRuns dense;
  dense.Go({.out = "run"});
  const auto none = InspectCheckpoint(dense.Folder("run"), BuiltInModels());
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_TRUE(none->routers.layers.empty());
  EXPECT_THAT(ToText(*none), Not(HasSubstr("\nexperts")));
}

}  // namespace
}  // namespace delink::testing::routing_test
