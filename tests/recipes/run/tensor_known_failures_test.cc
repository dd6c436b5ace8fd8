// What other frameworks' tensor and context ranks have got wrong, on ranks that
// are threads: losses divided by what a rank itself counts, documents that see
// more than themselves where ranks cut a row, and ranks that wait for each
// other where some are late. (Copies that part are in tensor_copies_test.cc,
// norms in tensor_norms_test.cc.)
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <memory>
#include <set>
#include <vector>

#include "framework/base/at.h"
#include "framework/base/rng.h"
#include "framework/comm/self_communicator.h"
#include "framework/step/engine/context_cut.h"
#include "tests/recipes/run/late_watch.h"
#include "tests/recipes/run/tensor_steps.h"

namespace delink::testing::tensor_known_failures_test {
namespace {

// Which targets count: of all rows, by row and token.
struct Targets {
  const char* name;
  std::function<bool(int64_t row, int64_t token)> count;
};

std::set<int64_t> TokensOf(int ranks, int place) {
  const std::vector<int32_t> places =
      ContextPlaces(StepRig::kSeq, ranks, place);
  return {places.begin(), places.end()};
}

std::vector<Targets> TargetsOf(int context) {
  const std::set<int64_t> first = TokensOf(context, 0),
                          last = TokensOf(context, context - 1);
  return {
      {"place 0 has none",
       [=](int64_t, int64_t t) { return !first.contains(t); }},
      {"the last place alone has any",
       [=](int64_t, int64_t t) { return last.contains(t); }},
      {"of some rows place 0 has none",
       [=](int64_t row, int64_t t) { return row < 5 && !first.contains(t); }},
      {"one in all, the last place's",
       [=](int64_t row, int64_t t) { return row == 6 && t == *last.begin(); }},
      {"none in the first micro-batch, few of place 0",
       [=](int64_t row, int64_t t) {
         return row >= 2 && (t == 0 || !first.contains(t));
       }},
      {"none in the first half of the rows",
       [=](int64_t row, int64_t) { return row >= 4; }},
  };
}

BatchEdit Counting(const Targets& targets) {
  return [targets](HostBatch& batch) {
    for (size_t i = 0; i < batch.targets.size(); ++i) {
      const auto token = static_cast<int64_t>(i) % StepRig::kSeq;
      const int64_t row =
          At(batch.samples, static_cast<int64_t>(i) / StepRig::kSeq);
      // Of what counts otherwise, so that tokens are as unequal as ever.
      if (!targets.count(row, token)) {
        batch.targets[i] = -1;
      } else if (batch.targets[i] < 0) {
        batch.targets[i] = 3;
      }
    }
  };
}

HostBatch BatchOf(const StepRig& rig, const Targets& targets) {
  HostBatch batch = rig.Batch(0);
  Counting(targets)(batch);
  return batch;
}

class TargetsTest : public ::testing::TestWithParam<TensorCase> {};
INSTANTIATE_TEST_SUITE_P(
    Rows, TargetsTest,
    ::testing::Values(
        TensorCase{.context = 2},
        TensorCase{.context = 3, .kind = "llama", .options = {.masked = true}},
        TensorCase{
            .context = 2, .data = 2, .kind = "llama", .options = {.zero = 1}},
        TensorCase{.tensor = 2, .context = 2, .options = {.recompute = true}},
        TensorCase{.tensor = 2, .data = 2, .sequence = false}));

// Ranks whose targets are all masked, and others that have few: the mean is
// over all of them.
TEST_P(TargetsTest, ThatSomeRanksLackCountAsOnOneRank) {
  TensorCase of = GetParam();
  of.options.layers = 2;
  const std::vector<Targets> cases = TargetsOf(std::max(of.context, 2));
  SelfCommunicator self;
  const std::unique_ptr<StepRig> one = AloneOf(self, of);
  std::vector<OneRank::Gradients> alone;
  std::vector<LossRecord> losses;
  for (const Targets& targets : cases) {
    alone.push_back(GradientsOf(*one, Counting(targets)));
    EXPECT_TRUE(std::isfinite(alone.back().result.loss));
    EXPECT_GT(alone.back().result.tokens, 0);
    EXPECT_GT(alone.back().result.grad_norm, 0);
    losses.push_back(*one->executor().Evaluate(BatchOf(*one, targets)));
  }
  OnRanks(of, [&](Communicator& world) {
    const std::unique_ptr<StepRig> rig = TogetherOf(world, of);
    for (size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE(cases[i].name);
      ExpectGradients(*rig, alone[i], Counting(cases[i]));
      const auto loss = rig->executor().Evaluate(BatchOf(*rig, cases[i]));
      ASSERT_TRUE(loss.ok()) << loss.status();
      EXPECT_NEAR(loss->loss_sum, losses[i].loss_sum,
                  kNear * losses[i].loss_sum);
      EXPECT_EQ(loss->tokens, losses[i].tokens);
    }
  });
}

// A batch without any at all has no gradient, and is skipped, by all alike.
TEST(TargetsOfNobody, ChangeNothing) {
  const TensorCase cases[] = {{}, {.context = 2}, {.tensor = 2, .data = 2}};
  for (const TensorCase& of : cases) {
    OnRanks(of, [&](Communicator& world) {
      const std::unique_ptr<StepRig> rig = TogetherOf(world, of);
      const double before = rig->executor().WeightNorms()->front();
      const HostBatch batch =
          BatchOf(*rig, {"none", [](int64_t, int64_t) { return false; }});
      const auto step = rig->executor().TrainStep(batch, 1, kTensorRate);
      ASSERT_TRUE(step.ok()) << step.status();
      EXPECT_EQ(step->tokens, 0);
      EXPECT_TRUE(step->skipped);
      EXPECT_EQ(rig->executor().WeightNorms()->front(), before);
      const auto next =
          rig->executor().TrainStep(rig->Batch(0), 1, kTensorRate);
      EXPECT_FALSE(next->skipped);
      EXPECT_TRUE(std::isfinite(next->grad_norm));
    });
  }
}

// A document of row 0, an odd number of tokens from `start` on, between others
// whose tokens `seed` draws; its targets alone count.
constexpr int64_t kDocument = 5;
BatchEdit DocumentAt(int64_t start, uint64_t seed) {
  return [=](HostBatch& batch) {
    const RngKey key = KeyFromSeed(seed);
    std::fill(batch.targets.begin(), batch.targets.end(), -1);
    for (int64_t i = 0; i < std::ssize(batch.inputs); ++i) {
      const auto draw = Philox(key, static_cast<uint64_t>(i), 0)[0];
      At(batch.inputs, i) = static_cast<int32_t>(20 + draw % 41);
    }
    for (int64_t t = 0; t < StepRig::kSeq; ++t) {
      const int64_t place = t - start;
      const bool inside = place >= 0 && place < kDocument;
      At(batch.positions, t) =
          static_cast<int32_t>(place < 0 ? t
                               : inside  ? place
                                         : place - kDocument);
      if (!inside) continue;
      At(batch.inputs, t) = static_cast<int32_t>(3 * place + 1);
      if (place + 1 < kDocument) {
        At(batch.targets, t) = static_cast<int32_t>(3 * (place + 1) + 1);
      }
    }
  };
}

// Wherever ranks cut the row.
TEST(Documents, AreTheirOwnOverContextRanks) {
  for (const char* const kind : kModelKinds) {
    TensorCase of{.kind = kind,
                  .options = {.layers = 2, .tied = false, .masked = true}};
    SelfCommunicator self;
    const std::unique_ptr<StepRig> alone = AloneOf(self, of);
    const StepResult expected = GradientsOf(*alone, DocumentAt(0, 1)).result;
    EXPECT_EQ(expected.tokens, kDocument - 1);
    for (const int context : {2, 3}) {
      of.context = context;
      OnRanks(of, [&](Communicator& world) {
        const std::unique_ptr<StepRig> rig = TogetherOf(world, of);
        for (const int64_t start : {0, 1, 4, 7}) {
          SCOPED_TRACE(start);
          double loss = 0, norm = 0;
          for (const uint64_t seed : {1, 2}) {
            const OneRank::Gradients of_ranks =
                GradientsOf(*rig, DocumentAt(start, seed));
            EXPECT_NEAR(of_ranks.result.loss, expected.loss, kNear);
            EXPECT_NEAR(of_ranks.result.grad_norm, expected.grad_norm, kNear);
            // Tokens of others have no part in it.
            const std::vector<double>& table =
                of_ranks.values.at("embed/token/weight");
            EXPECT_EQ(std::count(table.begin() + 20 * StepRig::kDim,
                                 table.end(), 0.0),
                      41 * StepRig::kDim);
            if (seed > 1) {
              EXPECT_EQ(of_ranks.result.loss, loss);
              EXPECT_EQ(of_ranks.result.grad_norm, norm);
            }
            loss = of_ranks.result.loss;
            norm = of_ranks.result.grad_norm;
          }
        }
      });
    }
  }
}

// Sends, reductions and the exchanges of visits, whoever comes to them first.
TEST(TensorHangs, NoneWhereRanksAreLate) {
  const TensorCase cases[] = {
      {.tensor = 2, .pipeline = 2, .options = {.lane_threads = true}},
      {.context = 2, .pipeline = 2, .options = {.tied = false, .turns = 2}},
  };
  for (const TensorCase& of : cases) {
    const OneRank expected = RunAlone(of);
    OnRanks(of, [&](Communicator& world) {
      LateWatch late(world.rank());
      TensorCase watched = of;
      watched.options.watch = &late;
      ExpectStepsOfOneRank(world, watched, expected);
    });
  }
}

}  // namespace
}  // namespace delink::testing::tensor_known_failures_test
