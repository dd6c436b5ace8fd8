// Whole runs with each optimizer: half with shared weights and half without.
// That one run is one run is in whole_run_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <ostream>

#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::optimizers_test {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSwitch = 10;
constexpr double kLayers = 4;  // that share until the switch
constexpr double kClose = 1e-6;

// Of each state in the gradient, by its name in checkpoints.
const std::map<std::string, int> kDegrees = {
    {"m", 1}, {"v", 2}, {"row", 2}, {"column", 2}};

struct Kind {
  const char* name;
  std::vector<std::string> sets;
  // Of its states after step kSwitch + 1, where that has no gradient; 0: it has
  // no states.
  double left = 0;
};
std::ostream& operator<<(std::ostream& out, const Kind& kind) {
  return out << kind.name;
}

class OptimizersTest : public ::testing::TestWithParam<Kind> {
 protected:
  OptimizersTest() { runs_.sets = GetParam().sets; }
  TinyRuns runs_{"tiny_llama"};
};

// The largest |a - factor b|, over the largest |b|.
double Distance(const std::vector<float>& a, const std::vector<float>& b,
                double factor) {
  if (a.size() != b.size()) return HUGE_VAL;
  double most = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(a[i] - factor * b[i]));
    size = std::max<double>(size, std::abs(b[i]));
  }
  return most / size;
}
INSTANTIATE_TEST_SUITE_P(
    Kinds, OptimizersTest,
    ::testing::Values(
        Kind{"sgd",
             {"optimizer.kind=sgd", "optimizer.lr=0.1",
              "optimizer.nesterov=true", "optimizer.decay=0.01"},
             0.9},
        Kind{"sgd_plain",
             {"optimizer.kind=sgd", "optimizer.lr=0.1",
              "optimizer.momentum=0.0"}},
        Kind{"lion", {"optimizer.kind=lion", "optimizer.lr=1e-3"}, 0.99},
        Kind{"adafactor",
             {"optimizer.kind=adafactor", "optimizer.lr=3e-2"},
             1 - std::pow(kSwitch + 1, -0.8)},
        Kind{"muon",
             {"optimizer.kind=muon", "optimizer.lr=1e-2",
              "optimizer.adamw_lr=3e-3", "optimizer.clip_value=0.02",
              "optimizer.betas=[0.95, 0.95]"},
             0.95}),
    [](const auto& info) { return std::string(info.param.name); });

// The states of a block that was delinked, and of what shared nothing, as they
// are after the first step of the second stage, which is made without a
// gradient: what the switch has left, times Kind::left.
TEST_P(OptimizersTest, AStateIsWhatItsPolicySays) {
  runs_.Go({.out = "pseudo", .until_step = kSwitch});
  const Tensors before = runs_.Load("pseudo", kSwitch);
  std::map<std::string, Tensors> after;
  for (const std::string policy : {"reset", "copy", "scale", "calibrated"}) {
    runs_.Go({.sets = {"stage.1.state=" + policy, "optimizer.clip=1e-30",
                       "optimizer.clip_value=0.0", "optimizer.decay=0.0"},
              .out = policy,
              .until_step = kSwitch + 1,
              .resume = true,
              .resume_from = runs_.Checkpoint("pseudo", kSwitch)});
    after[policy] = runs_.Load(policy, kSwitch + 1);
  }
  int states = 0;
  for (const auto& [path, values] : before) {
    if (path.rfind("/optimizer/blocks/2/", 0) != 0 || values.empty()) continue;
    const std::string state = path.substr(path.rfind('/') + 1);
    if (kDegrees.count(state) == 0) continue;
    SCOPED_TRACE(path);
    ++states;
    const double left = GetParam().left;
    const double share = std::pow(kLayers, -kDegrees.at(state));
    EXPECT_LT(Distance(after["copy"][path], values, left), kClose);
    EXPECT_LT(Distance(after["scale"][path], values, left * share), kClose);
    EXPECT_LT(Distance(after["reset"][path], values, 0), kClose);
    const std::vector<float>& calibrated = after["calibrated"][path];
    for (const float value : calibrated) ASSERT_TRUE(std::isfinite(value));
    for (const char* other : {"copy", "scale", "reset"}) {
      EXPECT_GT(Distance(calibrated, after[other][path], 1), 1e-3) << other;
    }
  }
  EXPECT_EQ(states > 0, GetParam().left > 0);
}

TEST_P(OptimizersTest, GroupsAreHeard) {
  runs_.Go({.out = "plain", .until_step = 3});
  runs_.Go(
      {.sets =
           {"optimizer.group=[{match=\"*norm*\", lr_scale=0.0, decay=0.0}]"},
       .out = "group",
       .until_step = 3});
  const Tensors plain = runs_.Load("plain", 3);
  for (const auto& [name, values] : runs_.Load("group", 3)) {
    if (name.rfind("/model/", 0) != 0) continue;
    const bool norm = name.find("norm") != std::string::npos;
    const bool ones = values == std::vector<float>(values.size(), 1.0F);
    EXPECT_EQ(ones, norm) << name;
    if (norm) {
      EXPECT_NE(plain.at(name), values) << name;
    }
  }
}

// A part can rest in one stage, and move in the next.
TEST_P(OptimizersTest, AGroupCanBeOfAPartAndAStage) {
  runs_.sets.emplace_back(
      "optimizer.group=[{part=\"norm\", stage=\"pseudo\", lr_scale=0.0, "
      "decay=0.0}]");
  runs_.Go({.out = "run", .until_step = kSwitch + 3});
  const auto rest = [&](int64_t step, const std::string& name) {
    const std::vector<float> values = runs_.Load("run", step).at(name);
    return values == std::vector<float>(values.size(), 1.0F);
  };
  const std::string norm = "/model/blocks/2/norm1/weight";
  EXPECT_TRUE(rest(kSwitch, norm));
  EXPECT_FALSE(rest(kSwitch + 3, norm));
}

// A group that gives Muon what it does not read.
TEST(MuonGroups, WhatWouldGoUnheardIsRefused) {
  TinyRuns runs("tiny_llama");
  const auto error_of = [&](const std::string& groups) {
    return std::string(runs.Run({.sets = {"optimizer.kind=muon",
                                          "optimizer.group=[" + groups + "]"},
                                 .out = "run",
                                 .until_step = 1,
                                 .overwrite = true})
                           .message());
  };
  EXPECT_THAT(
      error_of("{match=\"*norm*\", momentum=0.5}"),
      HasSubstr("optimizer.group[0].momentum: muon uses it for matrices "
                "of blocks, and '*norm*' matches none"));
  EXPECT_THAT(error_of("{match=\"*/bias\", betas=[0.5, 0.5]}, "
                       "{match=\"*/qkv/*\", betas=[0.5, 0.5]}"),
              HasSubstr("optimizer.group[1].betas: muon uses it for all but "
                        "matrices of blocks, and '*/qkv/*' matches none"));
  EXPECT_EQ(error_of("{match=\"*\", betas=[0.5, 0.5], momentum=0.5}"), "");
}

}  // namespace
}  // namespace delink::testing::optimizers_test
