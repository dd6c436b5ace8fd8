// What other frameworks' pipelines have got wrong, on ranks that are threads:
// gradients that hang on the number of micro-batches, norms that count a slab
// of two stages twice or a stage alone, copies of a slab that part, and hangs,
// which end with the watchdog's message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "framework/base/at.h"
#include "framework/comm/self_communicator.h"
#include "framework/comm/thread_communicator.h"
#include "parallel/watch/watchdog.h"
#include "tests/recipes/run/pipeline_steps.h"
#include "tests/testing/temp_dir.h"

namespace delink::testing::pipeline_known_failures_test {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr double kLr = 1e-3;
// Of sums of f32 in another order, relative to the largest element.
constexpr float kRounding = 1e-5F;

void OnRanks(int ranks, const std::function<void(Communicator&)>& rank_main) {
  const absl::Status status = RunRanks(ranks, [&](Communicator& world) {
    rank_main(world);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

float Largest(const std::vector<float>& x) {
  float largest = 0;
  for (const float value : x) largest = std::max(largest, std::abs(value));
  return largest;
}

void ExpectNear(const std::vector<float>& got,
                const std::vector<float>& expected, const std::string& name) {
  ASSERT_EQ(got.size(), expected.size()) << name;
  std::vector<float> difference(got.size());
  for (size_t i = 0; i < got.size(); ++i) difference[i] = got[i] - expected[i];
  EXPECT_GT(Largest(expected), 0) << name;
  EXPECT_LE(Largest(difference), kRounding * Largest(expected)) << name;
}

// A batch of one process at once, cut into micro-batches, with unequal numbers
// of targets, or for data ranks as well: the raw gradients are the same.
class PipelineGradientsTest
    : public ::testing::TestWithParam<std::tuple<int, int>> {};
INSTANTIATE_TEST_SUITE_P(Cuts, PipelineGradientsTest,
                         ::testing::Combine(::testing::Values(1, 2),
                                            ::testing::Values(1, 2, 4)));

TEST_P(PipelineGradientsTest, AreThoseOfOneProcess) {
  constexpr int64_t kBatch = 8;
  const int data = std::get<0>(GetParam());
  const int64_t accumulation = std::get<1>(GetParam());
  OnRanks(2 * data, [&](Communicator& world) {
    RigOptions options{.micro_batch = kBatch,
                       .global_batch = kBatch,
                       .tied = false,
                       .masked = data == 1};
    SelfCommunicator self;
    StepRig one(self, "none", options);
    options.pipeline = 2;
    options.micro_batch = kBatch / data / accumulation;
    StepRig rig(world, "none", options);
    const auto expected = one.executor().Gradients(one.Batch(1), 1);
    const auto got = rig.executor().Gradients(rig.Batch(1), 1);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->tokens, expected->tokens);
    EXPECT_NEAR(got->loss, expected->loss, 1e-6);
    EXPECT_NEAR(got->grad_norm / expected->grad_norm, 1, kRounding);
    for (const std::string& name : rig.TensorsHere()) {
      ExpectNear(rig.Gradient(name), one.Gradient(name), name);
    }
  });
}

struct SharedRow {
  bool tied;
  const char* share;
  int pipeline, data, zero;
  friend std::ostream& operator<<(std::ostream& out, const SharedRow& row) {
    return out << (row.tied ? "tied" : "untied") << ", share " << row.share
               << ", pipeline " << row.pipeline << ", data " << row.data
               << ", zero " << row.zero;
  }
};

class PipelineNormTest : public ::testing::TestWithParam<SharedRow> {};
INSTANTIATE_TEST_SUITE_P(Rows, PipelineNormTest,
                         ::testing::Values(SharedRow{false, "none", 2, 1, 0},
                                           SharedRow{true, "none", 2, 1, 0},
                                           SharedRow{true, "none", 3, 2, 1},
                                           SharedRow{false, "all", 3, 1, 1},
                                           SharedRow{true, "all", 2, 2, 0}));

// Clipped by it, so that weights hang on it; and what two stages have stays the
// same on both.
TEST_P(PipelineNormTest, IsOneProcessesAndCopiesStayEqual) {
  const SharedRow row = GetParam();
  const int ranks = row.pipeline * row.data;
  std::vector<std::map<std::string, std::vector<float>>> weights(
      static_cast<size_t>(ranks));
  OnRanks(ranks, [&](Communicator& world) {
    RigOptions options{.micro_batch = 2, .tied = row.tied, .clip = 0.1};
    SelfCommunicator self;
    StepRig one(self, row.share, options);
    options.pipeline = row.pipeline;
    options.zero = row.zero;
    StepRig rig(world, row.share, options);
    for (int64_t step = 1; step <= 5; ++step) {
      const auto got = rig.executor().TrainStep(rig.Batch(step), step, kLr);
      ASSERT_TRUE(got.ok()) << got.status();
      const auto expected =
          one.executor().TrainStep(one.Batch(step), step, kLr);
      EXPECT_GT(expected->grad_norm, options.clip);
      // Once updated, weights are not quite the same.
      const double tolerance = step == 1 ? kRounding : 100 * kRounding;
      EXPECT_NEAR(got->grad_norm / expected->grad_norm, 1, tolerance) << step;
      EXPECT_NEAR(got->loss / expected->loss, 1, tolerance) << step;
    }
    for (const std::string& name : rig.TensorsHere()) {
      At(weights, world.rank())[name] = rig.Weight(name);
    }
  });
  int copies = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    for (const auto& [name, values] : At(weights, rank)) {
      for (int other = rank + 1; other < ranks; ++other) {
        const auto found = At(weights, other).find(name);
        if (found == At(weights, other).end()) continue;
        EXPECT_EQ(values, found->second)
            << name << " of ranks " << rank << " and " << other;
        copies += rank / row.data != other / row.data ? 1 : 0;
      }
    }
  }
  EXPECT_EQ(copies > 0, row.tied || std::string(row.share) == "all");
}

// Tells the watchdog, and may stay in an instruction until `told`.
class Watched final : public StepWatch {
 public:
  Watched(Heartbeat& heartbeat, std::string stays,
          const std::atomic<bool>& told)
      : heartbeat_(heartbeat), stays_(std::move(stays)), told_(told) {}
  void Begin(Lane lane, int64_t step, std::string_view what) override {
    heartbeat_.Begin(lane, step, what);
    if (stays_.empty() || !what.starts_with(stays_)) return;
    while (!told_) std::this_thread::sleep_for(milliseconds(5));
  }
  void Wait(int64_t step, std::string_view what) override {
    heartbeat_.Wait(step, what);
  }
  double Vote() override { return 0; }

 private:
  Heartbeat& heartbeat_;
  const std::string stays_;
  const std::atomic<bool>& told_;
};

// What the watchdog tells of ranks that run this; empty: nothing.
std::string Judged(
    int ranks, milliseconds patience, const std::string& stays,
    const std::function<void(Communicator&, StepWatch&)>& rank_main) {
  const TempDir dir;
  std::atomic<bool> told = false;
  std::string message;
  (void)RunRanks(ranks, [&](Communicator& world) {
    auto dog = Watchdog::Start(world, {.folder = dir / "ranks",
                                       .patience = patience,
                                       .alike = false,
                                       .end = [&](std::string_view text) {
                                         if (!told.exchange(true)) {
                                           message = text;
                                         }
                                         world.Abort(1, text);
                                       }});
    if (!dog.ok()) return dog.status();
    const bool last = world.rank() == ranks - 1;
    Watched watch((*dog)->heartbeat(), last ? stays : "", told);
    rank_main(world, watch);
    return absl::OkStatus();
  });
  return message;
}

// As few micro-batches as one, fewer than stages, and stages that have nothing
// but the embedding, or the head.
TEST(PipelineHangs, NoneOfFewMicroBatchesAndStagesWithoutBlocks) {
  for (const int64_t micro_batches : {1, 2, 4}) {
    for (const bool threads : {false, true}) {
      PipelineCase of{.pipeline = 4, .micro_batches = micro_batches};
      of.options.layers = 2;
      of.options.lane_threads = threads;
      SCOPED_TRACE(::testing::PrintToString(of));
      EXPECT_EQ(Judged(4, std::chrono::seconds(20), "",
                       [&](Communicator& world, StepWatch& watch) {
                         PipelineCase watched = of;
                         watched.options.watch = &watch;
                         ExpectStepsAsWithout(world, watched);
                       }),
                "");
    }
  }
}

// The last stage does not get on, and all before it wait, each for the next.
TEST(PipelineHangs, AStageThatIsStuckIsNamed) {
  for (const bool threads : {false, true}) {
    const std::string message = Judged(
        3, milliseconds(1500), "B(4,b)",
        [&](Communicator& world, StepWatch& watch) {
          StepRig rig(world, "none",
                      {.micro_batch = 1,
                       .global_batch = 4,
                       .tied = false,
                       .lane_threads = threads,
                       .pipeline = 3,
                       .watch = &watch});
          EXPECT_FALSE(rig.executor().TrainStep(rig.Batch(1), 1, kLr).ok());
        });
    EXPECT_THAT(message,
                HasSubstr("rank 2 is stuck: it is in step 1, B(4,b) of "
                          "blocks/3"));
    EXPECT_THAT(message, HasSubstr("; the others waited "));
  }
}

}  // namespace
}  // namespace delink::testing::pipeline_known_failures_test
