// What other frameworks' pipelines have got wrong, on ranks that are threads:
// hangs, which here end with the watchdog's message. (Gradients, norms and
// copies of a slab are in pipeline_step_test.cc and tensor_step_test.cc.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "framework/comm/thread_communicator.h"
#include "parallel/watch/watchdog.h"
#include "tests/recipes/run/pipeline_steps.h"
#include "tests/testing/temp_dir.h"

namespace delink::testing::pipeline_known_failures_test {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr double kLr = 1e-3;

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

// The last rank does not get on, and the others wait for it: stages each for
// the next, or ranks that gather weights. (Where lanes have a thread, all ranks
// have begun a gather, so nothing tells which is stuck.)
TEST(PipelineHangs, ARankThatIsStuckIsNamed) {
  const struct {
    RigOptions options;
    const char *in, *of;
  } cases[] = {
      {{.global_batch = 4, .pipeline = 3}, "B(4,b)", "blocks/3"},
      {{.global_batch = 4, .lane_threads = true, .pipeline = 3},
       "B(4,b)",
       "blocks/3"},
      {{.global_batch = 12, .zero = 3}, "Fetch(5)", "blocks/1/attention"}};
  for (const auto& c : cases) {
    const std::string message = Judged(
        3, milliseconds(1500), c.in,
        [&](Communicator& world, StepWatch& watch) {
          RigOptions options = c.options;
          options.micro_batch = 1;
          options.tied = false;
          options.watch = &watch;
          StepRig rig(world, "none", options);
          EXPECT_FALSE(rig.executor().TrainStep(rig.Batch(1), 1, kLr).ok());
        });
    EXPECT_THAT(message,
                HasSubstr(absl::StrCat("rank 2 is stuck: it is in step 1, ",
                                       c.in, " of ", c.of)));
    EXPECT_THAT(message, HasSubstr("; the others waited "));
  }
}

}  // namespace
}  // namespace delink::testing::pipeline_known_failures_test
