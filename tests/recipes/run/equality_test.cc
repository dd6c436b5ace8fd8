// One run, whatever the layout: 20 steps of a tiny model, half of them with
// shared weights, compared as docs/equality.md says.
#include <gtest/gtest.h>

#include "tests/recipes/run/tiny_run.h"

namespace delink::testing {
namespace {

// Sums in another order differ by rounding: relative 2^-24 a term, a few
// thousand terms a sum, 20 steps that each carry the difference on. Observed
// differences are a tenth of this.
constexpr double kLossTolerance = 2e-5;
// Final weights, in units of the learning rate (1e-3): AdamW turns rounding
// noise in gradients that are almost zero into steps of that size, so the
// bulk is held tightly and the tail loosely.
constexpr double kLr = 1e-3;
constexpr double kMedianTolerance = 0.01 * kLr;
constexpr double kTailTolerance = 0.3 * kLr;  // 99 % of the elements

constexpr int64_t kSteps = 20;

class EqualityTest : public ::testing::TestWithParam<const char*> {
 protected:
  void Go(RunRequest request) {
    request.sets.emplace_back("run.checkpoint_every=0");
    const absl::Status status = runs_.Run(request);
    ASSERT_TRUE(status.ok()) << std::string(status.message());
    ASSERT_EQ(runs_.Steps(request.out).size(), kSteps);
  }
  void ExpectClose(const std::string& a, const std::string& b) {
    EXPECT_LT(LossDifference(runs_.Steps(a), runs_.Steps(b)), kLossTolerance);
    const Tensors x = runs_.Load(a, kSteps), y = runs_.Load(b, kSteps);
    EXPECT_LT(WeightDifference(x, y, 0.5), kMedianTolerance);
    EXPECT_LT(WeightDifference(x, y, 0.99), kTailTolerance);
  }
  TinyRuns runs_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Recipes, EqualityTest,
                         ::testing::ValuesIn(kTinyRecipes));

TEST_P(EqualityTest, TwiceIsBitEqual) {
  Go({.out = "a"});
  Go({.out = "b"});
  runs_.ExpectSameBits("a", "b", kSteps);
}

TEST_P(EqualityTest, AnotherSeedIsAnotherRun) {
  Go({.out = "a"});
  Go({.sets = {"run.seed=2"}, .out = "b"});
  EXPECT_GT(LossDifference(runs_.Steps("a"), runs_.Steps("b")), kLossTolerance);
}

TEST_P(EqualityTest, RanksAreClose) {
  Go({.out = "a"});
  for (const int ranks : {2, 4}) {
    const std::string out = "ranks" + std::to_string(ranks);
    Go({.ranks = ranks, .out = out});
    ExpectClose("a", out);
  }
}

TEST_P(EqualityTest, ZeroOneIsBitEqualToZeroNone) {
  for (const int ranks : {2, 4}) {
    const std::string n = std::to_string(ranks);
    Go({.ranks = ranks, .out = "whole" + n});
    Go({.ranks = ranks,
        .sets = {"stage.0.parallel.zero=1", "stage.1.parallel.zero=1"},
        .out = "sharded" + n});
    runs_.ExpectSameBits("whole" + n, "sharded" + n, kSteps);
  }
}

TEST_P(EqualityTest, ZeroMayChangeAtTheSwitch) {
  Go({.ranks = 2, .out = "whole"});
  Go({.ranks = 2, .sets = {"stage.0.parallel.zero=1"}, .out = "first"});
  Go({.ranks = 2, .sets = {"stage.1.parallel.zero=1"}, .out = "second"});
  runs_.ExpectSameBits("whole", "first", kSteps);
  runs_.ExpectSameBits("whole", "second", kSteps);
}

TEST_P(EqualityTest, RecomputeIsBitEqual) {
  for (const std::string dropout : {"0.0", "0.1"}) {
    const std::string kept = "kept" + dropout;
    Go({.sets = {"model.dropout=" + dropout, "run.recompute=none"},
        .out = kept});
    for (const std::string what : {"norm+activation", "block"}) {
      Go({.sets = {"model.dropout=" + dropout, "run.recompute=" + what},
          .out = what + dropout});
      runs_.ExpectSameBits(kept, what + dropout, kSteps);
    }
  }
}

TEST_P(EqualityTest, AccumulationIsClose) {
  Go({.sets = {"run.micro_batch=8"}, .out = "one"});
  Go({.sets = {"run.micro_batch=2"}, .out = "four"});
  ExpectClose("one", "four");
}

TEST_P(EqualityTest, DropoutDoesNotDependOnTheLayout) {
  const std::string dropout = "model.dropout=0.1";
  Go({.sets = {dropout, "run.micro_batch=8"}, .out = "one"});
  Go({.ranks = 2, .sets = {dropout, "run.micro_batch=1"}, .out = "many"});
  ExpectClose("one", "many");
}

TEST_P(EqualityTest, OrderIsBitEqualWithoutSharing) {
  ExpectOrderIsBitEqual(
      runs_, [this](const RunRequest& request) { Go(request); }, kSteps);
}

TEST_P(EqualityTest, OrderIsCloseWithSharing) {
  Go({.out = "micro_batch"});
  Go({.sets = {"run.order=\"layer\""}, .out = "layer"});
  ExpectClose("micro_batch", "layer");
}

}  // namespace
}  // namespace delink::testing
