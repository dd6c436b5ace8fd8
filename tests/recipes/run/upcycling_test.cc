// Models with experts that begin with a dense model: offline and by --init,
// which must agree. And models with experts that begin afresh.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/comm/self_communicator.h"
#include "recipes/run/observers/checkpointer.h"
#include "recipes/run/setup/setup.h"
#include "recipes/saved/evaluate.h"
#include "recipes/saved/offline_delink.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::upcycling_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kPseudo = 10, kReal = 20;  // recipes/tiny*.toml
constexpr int64_t kExperts = 4;

// MLPs that matter, and are as wide as experts.
const std::vector<std::string> kDense = {
    "model.init_std=0.2", "run.checkpoint_every=0", "run.norms_every=0"};

std::vector<std::string> Join(std::vector<std::string> a,
                              const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Saves what a run begins with, as after a step that is left out.
absl::Status SaveBeginning(RunSetup& run) {
  DELINK_ASSIGN_OR_RETURN(Recorder recorder, Recorder::Create(run));
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<StageRun> stage,
                          run.beginning().MakeStage(run.env()));
  RunPosition at = run.beginning().Position();
  DELINK_RETURN_IF_ERROR(recorder.Begin(*stage, at));
  at.Advance(std::nullopt);
  return Checkpointer(run, recorder).MaybeSave(*stage, at, true);
}

// The dense tensor that an expert's is a copy of; others have their own name.
std::string DenseName(std::string path) {
  const std::string experts = "/moe/experts/";
  const size_t at = path.find(experts);
  if (at != std::string::npos) path.replace(at, experts.size(), "/mlp/");
  return path;
}

bool IsRouter(const std::string& path) {
  return absl::StrContains(path, "/moe/router/");
}

// `moe` has the weights of `dense`, and in blocks with experts each expert
// those of the MLP.
void ExpectCopies(const Tensors& dense, const Tensors& moe) {
  int copies = 0, kept = 0;
  for (const auto& [path, values] : moe) {
    if (!path.starts_with("/model/") || IsRouter(path)) continue;
    const auto at = dense.find(DenseName(path));
    ASSERT_NE(at, dense.end()) << path;
    if (at->first == path) {
      EXPECT_EQ(values, at->second) << path;
      ++kept;
      continue;
    }
    std::vector<float> repeated;
    for (int64_t e = 0; e < kExperts; ++e) {
      repeated.insert(repeated.end(), at->second.begin(), at->second.end());
    }
    EXPECT_EQ(values, repeated) << path;
    ++copies;
  }
  EXPECT_GT(copies, 0);
  EXPECT_GT(kept, copies);
}

Tensors WeightsOf(Tensors tensors) {
  std::erase_if(tensors, [](const auto& tensor) {
    return !tensor.first.starts_with("/model/");
  });
  return tensors;
}

// A dense run over its switch.
struct Dense {
  const char* recipe;
  std::vector<std::string> sets;  // without biases in its MLPs
  int64_t width;                  // of products: dim + ffn
};

class Upcycling : public ::testing::TestWithParam<Dense> {
 protected:
  static void SetUpTestSuite() { all_ = new std::map<std::string, TinyRuns>(); }
  static void TearDownTestSuite() { delete all_; }
  void SetUp() override {
    const auto [at, made] =
        all_->try_emplace(GetParam().recipe, GetParam().recipe);
    runs_ = &at->second;
    if (!made) return;
    runs_->sets = Join(kDense, GetParam().sets);
    runs_->Go({.out = "dense"});
  }
  // Of the same model with experts.
  std::vector<std::string> Experts(const std::vector<std::string>& more) const {
    return Join({"model.kind=moe", absl::StrCat("model.block=", Kind()),
                 absl::StrCat("model.experts=", kExperts),
                 "model.router.normalise=true"},
                more);
  }
  std::string Kind() const {
    return std::string(GetParam().recipe) == "tiny" ? "gpt" : "llama";
  }
  std::string DenseAt(int64_t step) const {
    return runs_->Checkpoint("dense", step);
  }
  Tensors Offline(int64_t step, const std::string& out,
                  OfflineDelinkOptions options = {}) const {
    options.checkpoint = DenseAt(step);
    options.out = runs_->Folder(out + "/checkpoints");
    if (!options.upcycle) options.upcycle = {.experts = kExperts};
    const auto report = OfflineDelink(options, BuiltInModels());
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? runs_->Load(out, step) : Tensors();
  }
  double LossOf(const std::string& checkpoint) const {
    SelfCommunicator comm;
    const auto evaluation = Evaluate({.checkpoint = checkpoint,
                                      .data = runs_->Folder("corpus/train"),
                                      .batches = 4},
                                     BuiltInModels(), comm);
    EXPECT_TRUE(evaluation.ok()) << evaluation.status();
    return evaluation.ok() ? evaluation->loss : 0;
  }
  // Of a loss, if each of four blocks rounds differently. The terms of a
  // product are added in any order, and the gates, their sum and the products
  // with them round once each.
  double Rounding() const {
    return 4 * static_cast<double>(GetParam().width + 8) * std::ldexp(1, -24);
  }

  static std::map<std::string, TinyRuns>* all_;
  TinyRuns* runs_ = nullptr;
};
std::map<std::string, TinyRuns>* Upcycling::all_ = nullptr;

INSTANTIATE_TEST_SUITE_P(Dense, Upcycling,
                         ::testing::Values(Dense{"tiny_llama", {}, 32 + 80},
                                           Dense{"tiny", {}, 32 + 128}),
                         [](const auto& info) {
                           return std::string(info.param.recipe);
                         });

TEST_P(Upcycling, KeepsTheLossWhereGatesAddUpToOne) {
  for (const int64_t step : {kPseudo, kReal}) {
    const double loss = LossOf(DenseAt(step));
    int i = 0;
    for (const int64_t top_k : {1, 2, 4}) {
      const std::string out = absl::StrCat("loss", step, "of", top_k);
      Offline(step, out,
              {.upcycle = UpcycleOptions{.experts = kExperts, .top_k = top_k}});
      EXPECT_NEAR(LossOf(runs_->Folder(out)), loss, Rounding()) << out;
    }
    // Elsewhere it differs by much more.
    for (const char* const set :
         {"model.router.normalise=false", "model.router.scale=1.1"}) {
      const std::string out = absl::StrCat("loss", step, "other", i++);
      Offline(step, out,
              {.upcycle = UpcycleOptions{.experts = kExperts, .sets = {set}}});
      EXPECT_GT(std::abs(LossOf(runs_->Folder(out)) - loss), 20 * Rounding());
    }
  }
}

TEST_P(Upcycling, ExpertsAreTheMlpBitForBit) {
  // Blocks share as before, or not.
  ExpectCopies(runs_->Load("dense", kReal), Offline(kReal, "real"));
  const Tensors pseudo = runs_->Load("dense", kPseudo);
  ExpectCopies(pseudo, Offline(kPseudo, "pseudo"));
  ExpectCopies(pseudo, Offline(kPseudo, "cut", {.share = ShareSpec{}}));
  for (const auto& [out, links] :
       {std::pair{"pseudo", true}, std::pair{"cut", false}}) {
    const auto tensors = ListTensors(runs_->Checkpoint(out, kPseudo));
    ASSERT_TRUE(tensors.ok());
    for (const TensorInfo& tensor : *tensors) {
      if (!tensor.name.starts_with("blocks/")) continue;
      const bool first = tensor.name.starts_with("blocks/0/");
      EXPECT_EQ(!tensor.link.empty(), links && !first) << tensor.name;
    }
  }
}

// Each user of an MLP is E users of it, so with n layers that shared it, the
// sum of the gradient was one over n E.
TEST_P(Upcycling, StateFollowsThePolicy) {
  const struct {
    StatePolicy policy;
    int64_t step;
    ShareSpec share;
    double users;
  } cases[] = {{StatePolicy::kCopy, kReal, {}, 1},
               {StatePolicy::kScale, kReal, {}, kExperts},
               {StatePolicy::kScale, kPseudo, {}, 4 * kExperts},
               {StatePolicy::kScale,
                kPseudo,
                {.every = SharePolicy{SharePolicy::Kind::kAll}},
                kExperts},
               {StatePolicy::kReset, kReal, {}, 0}};
  int i = 0;
  for (const auto& c : cases) {
    SCOPED_TRACE(i);
    const Tensors dense = runs_->Load("dense", c.step);
    const Tensors moe = Offline(c.step, absl::StrCat("state", i++),
                                {.share = c.share, .state = c.policy});
    int states = 0;
    for (const auto& [path, values] : moe) {
      const bool m = path.ends_with("/m");
      if (!path.starts_with("/optimizer/") || (!m && !path.ends_with("/v"))) {
        continue;
      }
      if (IsRouter(path)) {
        EXPECT_THAT(values, ::testing::Each(0.0F)) << path;
        continue;
      }
      if (!absl::StrContains(path, "/moe/experts/")) continue;
      const std::vector<float>& old = dense.at(DenseName(path));
      ASSERT_EQ(values.size(), old.size() * kExperts);
      const double factor = c.users == 0 ? 0 : std::pow(c.users, m ? -1 : -2);
      for (size_t k = 0; k < values.size(); ++k) {
        // Powers of two: exact.
        const double expected = factor * double{old[k % old.size()]};
        ASSERT_EQ(values[k], static_cast<float>(expected)) << path << " " << k;
      }
      ++states;
    }
    EXPECT_GT(states, 0);
  }
  // Slabs that stay as they are keep theirs; `before` and `after` are equal.
  const Tensors dense = runs_->Load("dense", kReal),
                kept = Offline(kReal, "st");
  for (const auto& [path, values] : kept) {
    if (absl::StrContains(path, "/moe/")) continue;
    EXPECT_EQ(values, dense.at(path)) << path;
  }
}

TEST_P(Upcycling, NoiseSetsExpertsApart) {
  constexpr double kNoise = 0.25;
  const Tensors plain = Offline(kReal, "plain");
  const Tensors noisy = Offline(kReal, "noisy", {.noise = kNoise});
  EXPECT_EQ(FirstDifference(noisy, Offline(kReal, "again", {.noise = kNoise})),
            "");
  for (const auto& [path, values] : noisy) {
    const std::vector<float>& old = plain.at(path);
    if (!absl::StartsWith(path, "/model/") ||
        !absl::StrContains(path, "/moe/experts/")) {
      EXPECT_EQ(values, old) << path;
      continue;
    }
    const size_t each = values.size() / kExperts;
    double mean = 0, squares = 0;
    for (size_t i = 0; i < each; ++i) mean += old[i] / double(each);
    for (size_t i = 0; i < each; ++i) squares += std::pow(old[i] - mean, 2);
    std::set<std::vector<float>> noises;
    for (size_t e = 0; e < kExperts; ++e) {
      std::vector<float> noise(each);
      double own = 0;
      for (size_t i = 0; i < each; ++i) {
        noise[i] = values[e * each + i] - old[i];
        own += std::pow(noise[i], 2);
      }
      // The relative error of a standard deviation of n is about
      // 1 / sqrt(2 n).
      EXPECT_NEAR(std::sqrt(own / squares), kNoise,
                  5 * kNoise / std::sqrt(2 * double(each)))
          << path;
      noises.insert(noise);
    }
    EXPECT_EQ(noises.size(), size_t{kExperts}) << path;
  }
}

// Whatever the ranks: the bits of the offline way.
TEST_P(Upcycling, InitIsTheOfflineWay) {
  const Tensors expected = WeightsOf(Offline(kReal, "byhand"));
  ExpectCopies(runs_->Load("dense", kReal), expected);
  const struct {
    int ranks;
    const char* parallel;
  } layouts[] = {{1, "{}"},
                 {2, "{data=2, zero=1}"},
                 {2, "{tensor=2}"},
                 {4, "{pipeline=2, context=2}"}};
  int i = 0;
  for (const auto& [ranks, parallel] : layouts) {
    SCOPED_TRACE(parallel);
    const std::string out = absl::StrCat("init", i++);
    runs_->Go({.ranks = ranks,
               .sets = Experts({"stage.0.share=none",
                                absl::StrCat("stage.0.parallel=", parallel),
                                absl::StrCat("stage.1.parallel=", parallel)}),
               .out = out,
               .init = DenseAt(kReal),
               .instead = SaveBeginning});
    EXPECT_EQ(FirstDifference(WeightsOf(runs_->Load(out, 1)), expected), "");
  }
  // Routers are those of a run from scratch.
  runs_->Go({.sets = Experts({"stage.0.share=none"}),
             .out = "scratch",
             .instead = SaveBeginning});
  int routers = 0;
  for (const auto& [path, values] : WeightsOf(runs_->Load("scratch", 1))) {
    if (!IsRouter(path)) continue;
    EXPECT_EQ(values, expected.at(path)) << path;
    ++routers;
  }
  EXPECT_EQ(routers, 4);
}

// Some blocks keep their MLP; in a set of blocks that share, the first may be
// one of them.
TEST_P(Upcycling, BlocksWithoutExpertsKeepTheirMlp) {
  const Tensors dense = runs_->Load("dense", kPseudo);
  int i = 0;
  for (const std::string blocks :
       {"model.moe_every=2", "model.dense_layers=1"}) {
    SCOPED_TRACE(blocks);
    const std::string offline = absl::StrCat("some", i);
    const Tensors byhand = WeightsOf(Offline(
        kPseudo, offline,
        {.upcycle = UpcycleOptions{.experts = kExperts, .sets = {blocks}}}));
    ExpectCopies(dense, byhand);
    EXPECT_TRUE(byhand.contains("/model/blocks/0/mlp/down/weight"));
    const auto tensors = ListTensors(runs_->Checkpoint(offline, kPseudo));
    ASSERT_TRUE(tensors.ok());
    for (const TensorInfo& tensor : *tensors) {
      if (tensor.name == "blocks/3/moe/experts/down/weight") {
        EXPECT_EQ(tensor.link, "blocks/1/moe/experts/down/weight");
      }
    }
    const std::string out = absl::StrCat("someinit", i++);
    runs_->Go({.ranks = 2,
               .sets = Experts({blocks}),
               .out = out,
               .init = DenseAt(kPseudo),
               .instead = SaveBeginning});
    EXPECT_EQ(FirstDifference(WeightsOf(runs_->Load(out, 1)), byhand), "");
  }
}

// The run goes on, over its switch; its experts, equal at first, part.
TEST_P(Upcycling, TrainingGoesOn) {
  Offline(kPseudo, "begun");
  runs_->Go({.ranks = 2,
             .sets = Experts({}),
             .out = "on",
             .resume = true,
             .resume_from = runs_->Checkpoint("begun", kPseudo)});
  const std::vector<Step> steps = runs_->Steps("on");
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(steps.back().step, kReal);
  EXPECT_EQ(steps.back().stage, "real");
  const std::vector<float> experts =
      runs_->Load("on", kReal).at("/model/blocks/0/moe/experts/down/weight");
  const auto each = static_cast<int64_t>(experts.size()) / kExperts;
  for (int64_t e = 1; e < kExperts; ++e) {
    EXPECT_FALSE(std::equal(experts.begin(), experts.begin() + each,
                            experts.begin() + e * each));
  }
}

// What a stage says of MLPs, it says of experts and routers.
TEST_P(Upcycling, PoliciesByPartStay) {
  runs_->Go({.sets = {"stage.0.share={mlp=\"groups:2\"}"},
             .out = "parts",
             .until_step = kPseudo});
  const auto report =
      OfflineDelink({.checkpoint = runs_->Folder("parts"),
                     .out = runs_->Folder("partsmoe/checkpoints"),
                     .upcycle = UpcycleOptions{.experts = kExperts}},
                    BuiltInModels());
  ASSERT_TRUE(report.ok()) << report.status();
  const auto tensors = ListTensors(report->to);
  ASSERT_TRUE(tensors.ok());
  for (const TensorInfo& tensor : *tensors) {
    const bool shares = absl::StrContains(tensor.name, "/moe/") &&
                        (absl::StartsWith(tensor.name, "blocks/1/") ||
                         absl::StartsWith(tensor.name, "blocks/3/"));
    if (!absl::StartsWith(tensor.name, "blocks/")) continue;
    EXPECT_EQ(!tensor.link.empty(), shares) << tensor.name;
  }
  runs_->Go({.sets = Experts({"stage.0.share={experts=\"groups:2\", "
                              "router=\"groups:2\"}"}),
             .out = "partson",
             .until_step = kPseudo + 1,
             .resume = true,
             .resume_from = report->to});
}

TEST_P(Upcycling, WhatCannotBeginIsRefusedWithOneLine) {
  const auto refused = [&](const std::vector<std::string>& more,
                           const std::string& init) {
    const absl::Status status =
        runs_->Run({.sets = Experts(Join({"stage.0.share=none"}, more)),
                    .out = "refused",
                    .init = init});
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    const std::string message(status.message());
    EXPECT_FALSE(absl::StrContains(message, "\n")) << message;
    EXPECT_FALSE(PathExists(runs_->Folder("refused")));
    return message;
  };
  const std::string dense = DenseAt(kReal);
  EXPECT_THAT(refused({"model.shared_experts=2"}, dense),
              AllOf(HasSubstr(dense), HasSubstr("shared_experts is 2"),
                    HasSubstr("use shared_experts = 0")));
  EXPECT_THAT(refused({"model.expert_ffn=24"}, dense),
              AllOf(HasSubstr(dense), HasSubstr("model.expert_ffn is 24"),
                    HasSubstr("use expert_ffn = ")));
  EXPECT_THAT(refused({"model.vocab=300"}, dense), HasSubstr("[300, 32]"));
  Offline(kReal, "four");
  const std::string four = runs_->Checkpoint("four", kReal);
  EXPECT_THAT(refused({"model.experts=8"}, four),
              AllOf(HasSubstr(four), HasSubstr("has 4 experts in a block"),
                    HasSubstr("use experts = 4")));
  const absl::Status resumed = runs_->Run({.sets = Experts({"model.experts=8"}),
                                           .out = "refused",
                                           .resume = true,
                                           .resume_from = four});
  EXPECT_THAT(
      std::string(resumed.message()),
      AllOf(HasSubstr("model.experts"), HasSubstr("is 8"), HasSubstr("has 4")));
  EXPECT_FALSE(absl::StrContains(resumed.message(), "\n"));
  const auto offline = [&](const OfflineDelinkOptions& more) {
    OfflineDelinkOptions options = more;
    options.checkpoint = four;
    options.out = runs_->Folder("refused");
    const auto report = OfflineDelink(options, BuiltInModels());
    EXPECT_FALSE(PathExists(options.out));
    return std::string(report.status().message());
  };
  EXPECT_THAT(offline({.upcycle = UpcycleOptions{.experts = kExperts}}),
              HasSubstr("has experts in all its blocks already"));
}

TEST(UpcyclingBiases, AreRefusedWhereExpertsHaveNone) {
  TinyRuns runs("tiny");
  runs.Go({.out = "dense", .until_step = 1});
  const absl::Status status =
      runs.Run({.sets = {"model.kind=moe", "model.block=gpt", "model.experts=4",
                         "model.bias=false"},
                .out = "moe",
                .init = runs.Checkpoint("dense", 1)});
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("has blocks/0/mlp/down/bias"),
                    HasSubstr("experts have no such parameter")));
}

// A model with experts in some blocks gets them in the others.
TEST(UpcyclingOfAMixture, KeepsTheExpertsThatItHas) {
  TinyRuns runs("tiny_moe");
  runs.sets = Join(kDense, {"model.expert_ffn=80", "model.shared_experts=0"});
  runs.Go({.out = "some"});
  const auto options = [&](int64_t experts) {
    return OfflineDelinkOptions{
        .checkpoint = runs.Folder("some"),
        .out = runs.Folder(absl::StrCat("all", experts, "/checkpoints")),
        .upcycle = UpcycleOptions{.experts = experts}};
  };
  const auto report = OfflineDelink(options(8), BuiltInModels());
  ASSERT_TRUE(report.ok()) << report.status();
  const Tensors before = runs.Load("some", kReal);
  const Tensors after = runs.Load("all8", kReal);
  for (const auto& [path, values] : after) {
    if (absl::StrContains(path, "blocks/0/moe/")) continue;
    EXPECT_EQ(values, before.at(path)) << path;
  }
  const std::vector<float>& mlp =
      before.at("/model/blocks/0/mlp/gate_up/weight");
  const std::vector<float>& experts =
      after.at("/model/blocks/0/moe/experts/gate_up/weight");
  ASSERT_EQ(experts.size(), 8 * mlp.size());
  for (size_t i = 0; i < experts.size(); ++i) {
    ASSERT_EQ(experts[i], mlp[i % mlp.size()]) << i;
  }
  EXPECT_THAT(
      std::string(
          OfflineDelink(options(4), BuiltInModels()).status().message()),
      HasSubstr("has 8 experts in a block, but the model's number is 4"));
}

// shared/failures: experts that begin alike, and weights that hang on ranks.
TEST(FreshExperts, AreDistinctAndEqualInEveryLayout) {
  const TinyRuns runs("tiny_moe");
  const struct {
    int ranks;
    const char* parallel;
  } layouts[] = {{1, "{}"},
                 {2, "{data=2, zero=1}"},
                 {2, "{tensor=2}"},
                 {4, "{pipeline=2, context=2}"}};
  Tensors first;
  int i = 0;
  for (const auto& [ranks, parallel] : layouts) {
    SCOPED_TRACE(parallel);
    const std::string out = absl::StrCat("fresh", i++);
    runs.Go({.ranks = ranks,
             .sets = {"stage.0.share=none",
                      absl::StrCat("stage.0.parallel=", parallel),
                      absl::StrCat("stage.1.parallel=", parallel)},
             .out = out,
             .instead = SaveBeginning});
    const Tensors weights = WeightsOf(runs.Load(out, 1));
    if (first.empty()) first = weights;
    EXPECT_EQ(FirstDifference(first, weights), "");
  }
  std::set<std::vector<float>> distinct;
  size_t experts = 0;
  for (const auto& [path, values] : first) {
    if (!absl::StrContains(path, "/moe/experts/")) continue;
    const auto each = static_cast<std::ptrdiff_t>(values.size() / 8);
    for (int e = 0; e < 8; ++e, ++experts) {
      distinct.emplace(values.begin() + e * each,
                       values.begin() + (e + 1) * each);
    }
  }
  EXPECT_EQ(experts, size_t{3 * 2 * 8});
  EXPECT_EQ(distinct.size(), experts);
}

}  // namespace
}  // namespace delink::testing::upcycling_test
