// The norms that a run writes: by which layers, and when. That nothing of the
// run depends on them is in whole_run_test.cc, that they do not depend on how
// state is sharded, nor on where a run was stopped, in pipeline_run_test.cc and
// offload_run_test.cc.
#include "recipes/run/observers/norms_by_layer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "framework/base/at.h"
#include "recipes/run/stage/pipeline_rows.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::norms_by_layer_test {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kSwitch = 10;  // recipes/tiny.toml

TEST(NormsByLayer, ComeAtTheirStepsUnderTheNamesOfWhoShares) {
  const TinyRuns runs;
  runs.Go({.ranks = 2,
           .sets = {"run.norms_every=4"},
           .out = "run",
           .lane_threads = true});
  const std::vector<Step> steps = runs.Steps("run");
  std::vector<int64_t> at;
  for (const Norms& norms : runs.NormRows("run")) {
    at.push_back(norms.step);
    if (norms.step <= kSwitch) {
      EXPECT_THAT(norms.layers,
                  ElementsAre("embed", "embed,head", "blocks/0..3", "head"));
    } else {
      EXPECT_THAT(norms.layers,
                  ElementsAre("embed", "embed,head", "blocks/0", "blocks/1",
                              "blocks/2", "blocks/3", "head"));
    }
    ASSERT_EQ(norms.gradient.size(), norms.layers.size());
    ASSERT_EQ(norms.weight.size(), norms.layers.size());
    double squares = 0;
    for (const double norm : norms.gradient) squares += norm * norm;
    const double all = At(steps, norms.step - 1).grad_norm;
    EXPECT_NEAR(std::sqrt(squares), all, 1e-12 * all);
    for (const double norm : norms.weight) EXPECT_GT(norm, 0);
  }
  EXPECT_THAT(at, ElementsAre(4, 8, 12, 16, 20));
}

class Fixed final : public EpilogueModule {
 public:
  struct Config {};
  Fixed(const Scope&, const Config&) {}
  void Loss(Var) override {}
  Var Logits(Var x) override { return x; }
};

class Plain final : public Module {
 public:
  struct Config {};
  Plain(const Scope&, const Config&) {}
  Var operator()(Var x) override { return x; }
};

TEST(NormsByLayer, NamesSayWhichLayers) {
  ParamRegistry registry;
  Sequential model{Scope(registry)};
  model.Prologue<Plain>("embed", {});
  for (int i = 0; i < 6; ++i) model.Block<Plain>({});
  model.Epilogue<Fixed>({});
  EXPECT_EQ(NameOfLayers(model, {0}), "embed");
  EXPECT_EQ(NameOfLayers(model, {3}), "blocks/2");
  EXPECT_EQ(NameOfLayers(model, {1, 2, 3, 4, 5, 6}), "blocks/0..5");
  EXPECT_EQ(NameOfLayers(model, {1, 3, 5}), "blocks/0,2,4");
  EXPECT_EQ(NameOfLayers(model, {1, 2, 5, 6}), "blocks/0..1,4..5");
  EXPECT_EQ(NameOfLayers(model, {0, 7}), "embed,head");
}

}  // namespace
}  // namespace delink::testing::norms_by_layer_test
